"""Remembered answers with who asked; how often each may still answer follows from the rows of its uses."""

from alembic import op
from sqlalchemy import Column, String

revision = "r0013"
down_revision = "r0012"


def upgrade() -> None:
    """Add the column, and take away the count that every worker had to change."""
    op.add_column("grants", Column("requester", String(64), nullable=False, server_default=""))
    op.drop_column("grants", "uses_left")
