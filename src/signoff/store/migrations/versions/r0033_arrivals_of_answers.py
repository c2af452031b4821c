"""The moment at which each answer arrived, by the store's clock."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "r0033"
down_revision = "r0032"


def upgrade() -> None:
    """Add the column. An answer stored before is judged by its own time alone."""
    op.add_column("answers", Column("arrived_at", BigInteger, nullable=True))
