"""What events tell beside the record, until they are numbered, and whose call an event is about."""

from alembic import op
from sqlalchemy import Column, String, Text, text

revision = "r0021"
down_revision = "r0020"


def upgrade() -> None:
    """Add the table and the column."""
    op.create_table(
        "event_facts",
        Column("stream", String(200), primary_key=True),
        Column("key", String(200), primary_key=True),
        Column("body", Text, nullable=False),
    )
    op.add_column("events", Column("actor", String(64), nullable=False, server_default=text("''")))
