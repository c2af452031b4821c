"""Events, which programs outside are told: made of the record and numbered by tenant."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Index, String, Text, text

revision = "r0019"
down_revision = "r0018"


def upgrade() -> None:
    """Add the tables, and up to which record of a stream events were made."""
    op.add_column("audit_heads", Column("numbered", BigInteger, nullable=False, server_default=text("0")))
    # What happened before is in the record: nobody is told of it as if it happened now.
    op.execute("UPDATE audit_heads SET numbered = seq")
    grown = text("seq > numbered")
    op.create_index("audit_heads_grown", "audit_heads", ["stream"], sqlite_where=grown, postgresql_where=grown)
    op.create_table(
        "event_heads",
        Column("tenant", String(64), primary_key=True),
        Column("number", BigInteger, nullable=False),
    )
    op.create_table(
        "events",
        Column("tenant", String(64), primary_key=True),
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        Column("stream", String(200), nullable=False),
        Column("call", String(32), nullable=False),
        Column("private", Boolean, nullable=False),
        Column("body", Text, nullable=False),
        Column("numbered_at", BigInteger, nullable=False),
        Index("events_of_streams", "stream", "number"),
        Index("events_age", "numbered_at"),
    )
