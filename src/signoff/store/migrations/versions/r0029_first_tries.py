"""When the first try to send a card began."""

from alembic import op
from sqlalchemy import BigInteger, Column

revision = "r0029"
down_revision = "r0028"


def upgrade() -> None:
    """Add the column. Cards that are out count from when the vendor took them."""
    op.add_column("deliveries", Column("tried_at", BigInteger, nullable=True))
    op.execute("UPDATE deliveries SET tried_at = sent_at")
