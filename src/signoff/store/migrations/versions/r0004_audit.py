"""The audit record: streams, records, checkpoints."""

from alembic import op
from sqlalchemy import BigInteger, Column, String, Text

revision = "r0004"
down_revision = "r0003"


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "audit_heads",
        Column("stream", String(200), primary_key=True),
        Column("seq", BigInteger, nullable=False),
        Column("hash", String(64), nullable=False),
        Column("covered", BigInteger, nullable=False),
    )
    op.create_table(
        "audit_records",
        Column("stream", String(200), primary_key=True),
        Column("seq", BigInteger, primary_key=True),
        Column("key", String(200), nullable=False),
        Column("kind", String(16), nullable=False),
        Column("at", String(32), nullable=False),
        Column("tenant", String(64), nullable=False),
        Column("subject", String(200), nullable=False),
        Column("data", Text, nullable=False),
        Column("prev", String(64), nullable=False),
        Column("hash", String(64), nullable=False),
        Column("written_at", BigInteger, nullable=False),
    )
    op.create_index("audit_records_keys", "audit_records", ["stream", "key"], unique=True)
    op.create_table(
        "audit_checkpoints",
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("body", Text, nullable=False),
        Column("hash", String(64), nullable=False),
        Column("key_id", String(64), nullable=False),
        Column("signature", String(128), nullable=False),
    )
