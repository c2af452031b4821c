"""Which unused call equal proposals of an agent join."""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, String

revision = "r0027"
down_revision = "r0026"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "call_joins",
        Column("key", String(64), primary_key=True),
        Column("turn", String(64), nullable=False),
        Column("proposed_at", BigInteger, nullable=False),
        Index("call_joins_age", "proposed_at"),
    )
