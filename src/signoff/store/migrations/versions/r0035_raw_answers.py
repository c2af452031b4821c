"""Answers that came past the gateway, and the receipts that they were given."""

from alembic import op
from sqlalchemy import BigInteger, Column, String, Text

revision = "r0035"
down_revision = "r0034"


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "raw_answers",
        Column("key", String(300), primary_key=True),
        Column("approval", String(200), nullable=False),
        Column("body", Text, nullable=False),
        Column("arrived_at", BigInteger, nullable=False),
    )
    op.create_index("raw_answers_of_approvals", "raw_answers", ["approval"])
    op.create_index("raw_answers_arrived", "raw_answers", ["arrived_at", "key"])
    op.create_table(
        "raw_receipts",
        Column("key", String(300), primary_key=True),
        Column("approval", String(200), nullable=False),
        Column("delivery", String(300), nullable=False),
        Column("body", Text, nullable=False),
        Column("taken_at", BigInteger, nullable=False),
    )
    op.create_index("raw_receipts_of_approvals", "raw_receipts", ["approval"])
