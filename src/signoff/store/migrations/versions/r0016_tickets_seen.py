"""When whoever runs a ticket was last heard of: nobody is asked what became of a tool that still runs."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "r0016"
down_revision = "r0015"


def upgrade() -> None:
    """Add the column."""
    op.add_column("tickets", Column("seen_at", BigInteger, nullable=True))
