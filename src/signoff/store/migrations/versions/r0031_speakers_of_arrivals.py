"""The author of each message that came in by a channel, to read an approval together with later words."""

from alembic import op
from sqlalchemy import Column, String

revision = "r0031"
down_revision = "r0030"


def upgrade() -> None:
    """Add the column and its index. A message stored before names no author and is read alone."""
    op.add_column("arrivals", Column("speaker", String(64), nullable=False, server_default=""))
    op.create_index("arrivals_by_speaker", "arrivals", ["speaker", "received_at"])
