"""What subscriptions are owed of the events."""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, Integer, String, Text

revision = "r0020"
down_revision = "r0019"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "event_deliveries",
        Column("key", String(80), primary_key=True),
        Column("subscription", String(64), nullable=False),
        Column("tenant", String(64), nullable=False),
        Column("number", BigInteger, nullable=False),
        Column("body", Text, nullable=False),
        Column("state", String(8), nullable=False),
        Column("code", String(100), nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Index("event_deliveries_due", "state", "subscription", "tenant", "due_at"),
    )
    op.create_table(
        "subscriptions",
        Column("name", String(64), primary_key=True),
        Column("tenant", String(64), primary_key=True),
        Column("number", BigInteger, nullable=False),
    )
