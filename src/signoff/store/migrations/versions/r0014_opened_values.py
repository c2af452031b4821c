"""Who opened which page of all the values of a question whose card has no room for them."""

import sqlalchemy as sa
from alembic import op

revision = "r0014"
down_revision = "r0013"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "opened_values",
        sa.Column("question_hash", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("person", sa.String(64), primary_key=True),
        sa.Column("page", sa.Integer, primary_key=True),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
    )
