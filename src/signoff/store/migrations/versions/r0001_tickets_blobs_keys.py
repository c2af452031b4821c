"""Tickets, blobs and keys. Stores that had them before steps were counted take this one, too, and keep their rows."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, String, Text

revision = "r0001"
down_revision = None


def upgrade() -> None:
    """Make the tables that are not there."""
    op.create_table(
        "blobs",
        Column("sha256", String(64), primary_key=True),
        Column("size", Integer, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "tickets",
        Column("key", String(80), primary_key=True),
        Column("workflow", String(200), nullable=False),
        Column("call", String(32), nullable=False),
        Column("tool", String(64), nullable=False),
        Column("owner", String(200), nullable=False),
        Column("state", String(8), nullable=False),
        Column("outcome", Text, nullable=True),
        Column("claimed_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger, nullable=True),
        if_not_exists=True,
    )
    op.create_table(
        "keys",
        Column("name", String(64), primary_key=True),
        Column("secret", LargeBinary, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        if_not_exists=True,
    )
