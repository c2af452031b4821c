"""That a card is to be reminded of, apart from what kind of card it is."""

import sqlalchemy as sa
from alembic import op

revision = "r0008"
down_revision = "r0007"


def upgrade() -> None:
    """Add the column."""
    op.add_column("deliveries", sa.Column("remind_at", sa.BigInteger, nullable=True))
    op.execute("UPDATE deliveries SET remind_at = due_at, kind = 'ask' WHERE kind = 'remind'")
