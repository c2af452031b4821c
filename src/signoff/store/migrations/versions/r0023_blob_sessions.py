"""Whose turns may name which blob, and by what old rows are found."""

from alembic import op
from sqlalchemy import BigInteger, Column, String, text

revision = "r0023"
down_revision = "r0022"


def upgrade() -> None:
    """Add the table and the indexes."""
    op.create_table(
        "blob_sessions",
        Column("sha256", String(64), primary_key=True),
        Column("tenant", String(64), primary_key=True),
        Column("session", String(64), primary_key=True),
        Column("kept_at", BigInteger, nullable=False),
    )
    op.create_index("blob_sessions_age", "blob_sessions", ["kept_at", "sha256"])
    op.create_index("blob_sessions_of", "blob_sessions", ["tenant", "session"])
    # Of the blobs that there are nobody knows who names them: they stay.
    op.execute(text("INSERT INTO blob_sessions SELECT sha256, '', '', created_at FROM blobs"))
    op.create_index("tickets_age", "tickets", ["claimed_at", "key"])
    op.create_index("uses_age", "uses", ["used_at"])
    op.create_index("grants_of_approvals", "grants", ["approval_id"])
    op.create_index("grants_age", "grants", ["expires_at"])
    op.drop_index("questions_opened", "questions")
    op.create_index("questions_opened", "questions", ["opened_at", "approval"])
