"""Tickets by call, and the turn's nonce: two turns of one id, years apart, are not one."""

from alembic import op
from sqlalchemy import Column, String

revision = "r0010"
down_revision = "r0009"


def upgrade() -> None:
    """Add the column and the index."""
    op.add_column("tickets", Column("nonce", String(64), nullable=False, server_default=""))
    op.create_index("tickets_by_call", "tickets", ["workflow", "call"])
