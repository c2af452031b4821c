"""Answers that count for nothing: their turns did not take them."""

import sqlalchemy as sa
from alembic import op

revision = "r0015"
down_revision = "r0014"


def upgrade() -> None:
    """Add the column."""
    op.add_column("answers", sa.Column("voided_at", sa.BigInteger, nullable=True))
