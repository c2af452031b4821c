"""The actor whose call a remembered answer was given for."""

from alembic import op
from sqlalchemy import Column, Text

revision = "r0030"
down_revision = "r0029"


def upgrade() -> None:
    """Add the column. An answer remembered before names no actor, and serves no external agent."""
    op.add_column("grants", Column("actor", Text, nullable=False, server_default=""))
