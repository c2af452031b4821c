"""The messages that channels sent beside cards, to know a reply to one by its vendor id."""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, String, Text

revision = "r0034"
down_revision = "r0033"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "own_messages",
        Column("channel", String(64), primary_key=True),
        Column("vendor_id", String(500), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("person", String(64), nullable=False),
        Column("content", Text, nullable=False),
        Column("sent_at", BigInteger, nullable=False),
        Index("own_messages_age", "sent_at"),
    )
