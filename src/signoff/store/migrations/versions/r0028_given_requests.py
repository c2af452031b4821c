"""What the caller of a call gave with it, to be told the same again."""

from alembic import op
from sqlalchemy import Column, Text

revision = "r0028"
down_revision = "r0027"


def upgrade() -> None:
    """Add the column."""
    op.add_column("call_joins", Column("given", Text, nullable=True))
