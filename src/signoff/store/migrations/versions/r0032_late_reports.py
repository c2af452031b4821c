"""What an agent reports of a call after the time for its report."""

from alembic import op
from sqlalchemy import Column, Text

revision = "r0032"
down_revision = "r0031"


def upgrade() -> None:
    """Add the column."""
    op.add_column("tickets", Column("late_report", Text, nullable=True))
