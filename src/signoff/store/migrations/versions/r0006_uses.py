"""Uses of tools whose number is limited."""

from alembic import op
from sqlalchemy import BigInteger, Column, String

revision = "r0006"
down_revision = "r0005"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "uses",
        Column("key", String(80), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("tool", String(300), nullable=False),
        Column("person", String(200), nullable=False),
        Column("session", String(64), nullable=False),
        Column("turn", String(64), nullable=False),
        Column("call", String(32), nullable=False),
        Column("used_at", BigInteger, nullable=False),
        Column("returned_at", BigInteger, nullable=True),
    )
    op.create_index("uses_by_tool", "uses", ["tenant", "tool", "used_at"])
