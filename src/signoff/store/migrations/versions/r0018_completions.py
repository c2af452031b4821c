"""Replies of models, kept before the gates judge their calls."""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, LargeBinary, String

revision = "r0018"
down_revision = "r0017"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "completions",
        Column("key", String(80), primary_key=True),
        Column("body", LargeBinary, nullable=False),
        Column("kept_at", BigInteger, nullable=False),
        Index("completions_age", "kept_at"),
    )
