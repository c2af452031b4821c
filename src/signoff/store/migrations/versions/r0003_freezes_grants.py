"""The kill switch, and remembered answers with what used them."""

from alembic import op
from sqlalchemy import BigInteger, Column, Integer, String, Text

revision = "r0003"
down_revision = "r0002"


def upgrade() -> None:
    """Make the three tables."""
    op.create_table(
        "freezes",
        Column("tenant", String(64), primary_key=True),
        Column("reason", Text, nullable=False),
        Column("frozen_by", String(64), nullable=False),
        Column("frozen_at", BigInteger, nullable=False),
    )
    op.create_table(
        "grants",
        Column("id", String(64), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("session", String(64), nullable=False),
        Column("tool", String(64), nullable=False),
        Column("definition", String(64), nullable=False),
        Column("exact", String(64), nullable=False),
        Column("predicate", Text, nullable=False),
        Column("rule", Text, nullable=False),
        Column("policy_hash", String(64), nullable=False),
        Column("verdict", String(8), nullable=False),
        Column("people", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("approval_id", String(200), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("uses", Integer, nullable=False),
        Column("uses_left", Integer, nullable=False),
        Column("revoked_by", String(64), nullable=True),
        Column("revoked_at", BigInteger, nullable=True),
    )
    op.create_index("grants_by_tool", "grants", ["tenant", "tool"])
    op.create_table(
        "grant_uses",
        Column("grant_id", String(64), primary_key=True),
        Column("key", String(80), primary_key=True),
        Column("used_at", BigInteger, nullable=False),
    )
