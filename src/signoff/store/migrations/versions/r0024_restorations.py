"""When the store was restored from a backup."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "r0024"
down_revision = "r0023"


def upgrade() -> None:
    """Add the table."""
    op.create_table("restorations", Column("at", BigInteger, primary_key=True, autoincrement=False))
