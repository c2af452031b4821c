"""People whom logins vouched for."""

from alembic import op
from sqlalchemy import BigInteger, Column, String, Text

revision = "r0005"
down_revision = "r0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "people",
        Column("tenant", String(64), primary_key=True),
        Column("person", String(64), primary_key=True),
        Column("body", Text, nullable=False),
        Column("seen_at", BigInteger, nullable=False),
        Column("until", BigInteger, nullable=False),
        Column("ended_by", String(64), nullable=True),
        Column("ended_at", BigInteger, nullable=True),
    )
