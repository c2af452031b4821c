"""What stands below people's sign-offs."""

import sqlalchemy as sa
from alembic import op

revision = "r0011"
down_revision = "r0010"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "footers",
        sa.Column("tenant", sa.String(64), primary_key=True),
        sa.Column("person", sa.String(64), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("code", sa.String(8), primary_key=True),
        sa.Column("asked_at", sa.BigInteger, nullable=False),
        sa.Column("known_at", sa.BigInteger, nullable=True),
    )
