"""Counts of what was refused, and a row by which readiness sees that the store can be written."""

from alembic import op
from sqlalchemy import BigInteger, Column, String

revision = "r0009"
down_revision = "r0008"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "refusals",
        Column("kind", String(16), primary_key=True),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        Column("number", BigInteger, nullable=False),
    )
    op.create_table(
        "probes",
        Column("name", String(16), primary_key=True),
        Column("at", BigInteger, nullable=False),
    )
