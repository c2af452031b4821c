"""Whom a question may concern, beside its body: a list reads only what somebody may be shown."""

from alembic import op
from sqlalchemy import Column, Text

revision = "r0017"
down_revision = "r0016"


def upgrade() -> None:
    """Add the column; a question without it is read by every list."""
    op.add_column("questions", Column("readers", Text, nullable=True))
