"""Personal tokens, and the sessions of people who signed in."""

from alembic import op
from sqlalchemy import BigInteger, Column, String

revision = "r0002"
down_revision = "r0001"


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "tokens",
        Column("id", String(16), primary_key=True),
        Column("digest", String(64), nullable=False),
        Column("tenant", String(64), nullable=False),
        Column("person", String(64), nullable=False),
        Column("scopes", String(64), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
        Column("used_at", BigInteger, nullable=True),
        Column("revoked_at", BigInteger, nullable=True),
    )
    op.create_table(
        "sessions",
        Column("digest", String(64), primary_key=True),
        Column("tenant", String(64), nullable=False),
        Column("person", String(64), nullable=False),
        Column("assurance", String(8), nullable=False),
        Column("scopes", String(64), nullable=False),
        Column("token", String(16), nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("expires_at", BigInteger, nullable=False),
    )
