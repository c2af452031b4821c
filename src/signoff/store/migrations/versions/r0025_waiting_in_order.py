"""Questions that have not ended, in the order in which they are listed."""

from alembic import op
from sqlalchemy import text

revision = "r0025"
down_revision = "r0024"


def upgrade() -> None:
    """Replace the index, which led to all that waits and had to be sorted, by one that a list reads from its begin."""
    op.drop_index("questions_waiting", "questions")
    still_open = text("ended_at IS NULL")
    op.create_index(
        "questions_waiting",
        "questions",
        ["tenant", "last_at", "approval"],
        sqlite_where=still_open,
        postgresql_where=still_open,
    )
