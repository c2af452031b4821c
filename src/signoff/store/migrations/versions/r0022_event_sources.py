"""Up to which moment is followed what the gateway records as it sees it."""

from alembic import op
from sqlalchemy import BigInteger, Column, String

revision = "r0022"
down_revision = "r0021"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "event_sources",
        Column("name", String(32), primary_key=True),
        Column("moment", BigInteger, nullable=False),
    )
