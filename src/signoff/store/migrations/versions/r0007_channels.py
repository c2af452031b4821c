"""Notices of requests, cards on their way, and what came in by channels."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text

revision = "r0007"
down_revision = "r0006"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "notices",
        Column("key", String(260), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("event", String(16), nullable=False),
        Column("body", Text, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("done_at", BigInteger, nullable=True),
    )
    op.create_table(
        "deliveries",
        Column("token", String(26), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("approval", String(200), nullable=False),
        Column("revision", Integer, nullable=False),
        Column("person", String(64), nullable=False),
        Column("channel", String(64), nullable=False),
        Column("address", String(400), nullable=False),
        Column("state", String(16), nullable=False),
        Column("kind", String(8), nullable=False),
        Column("vendor_id", String(500), nullable=False),
        Column("handle", Text, nullable=False),
        Column("code", String(100), nullable=False),
        Column("message", Text, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("sent_at", BigInteger, nullable=True),
        Column("changed_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger, nullable=True),
        Column("closed_at", BigInteger, nullable=True),
        Column("request", Text, nullable=False),
    )
    op.create_table(
        "arrivals",
        Column("key", String(300), primary_key=True),
        Column("channel", String(64), nullable=False),
        Column("kind", String(8), nullable=False),
        Column("body", Text, nullable=False),
        Column("received_at", BigInteger, nullable=False),
        Column("due_at", BigInteger, nullable=False),
        Column("claimed_until", BigInteger, nullable=False),
        Column("attempts", Integer, nullable=False),
        Column("state", String(8), nullable=False),
        Column("result", Text, nullable=True),
    )
    op.create_index("notices_due", "notices", ["done_at", "due_at"])
    op.create_index("deliveries_cards", "deliveries", ["approval", "revision", "person", "channel"], unique=True)
    op.create_index("deliveries_by_vendor", "deliveries", ["channel", "vendor_id"])
    op.create_index("deliveries_by_address", "deliveries", ["channel", "address", "state"])
    op.create_index("deliveries_due", "deliveries", ["state", "due_at"])
    op.create_index("arrivals_due", "arrivals", ["state", "due_at"])
