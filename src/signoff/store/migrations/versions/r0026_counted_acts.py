"""What tenants with limits did lately, and which questions wait no more."""

from alembic import op
from sqlalchemy import BigInteger, Column, Index, String, text

revision = "r0026"
down_revision = "r0025"


def upgrade() -> None:
    """Add the table, the column as answers and later questions tell it, and the index by which it is counted."""
    op.create_table(
        "counted_acts",
        Column("key", String(300), primary_key=True),
        Column("kind", String(8), nullable=False),
        Column("tenant", String(64), nullable=False),
        Column("at", BigInteger, nullable=False),
        Index("counted_acts_lately", "kind", "tenant", "at"),
    )
    op.add_column("questions", Column("settled_at", BigInteger, nullable=True))
    op.execute(
        "UPDATE questions SET settled_at = opened_at WHERE ended_at IS NULL AND ("
        "EXISTS (SELECT 1 FROM answers a WHERE a.approval = questions.approval AND a.revision = questions.revision"
        " AND a.settles AND a.voided_at IS NULL)"
        " OR EXISTS (SELECT 1 FROM questions q WHERE q.approval = questions.approval"
        " AND q.revision > questions.revision))"
    )
    unsettled = text("ended_at IS NULL AND settled_at IS NULL")
    op.create_index(
        "questions_unsettled",
        "questions",
        ["tenant", "last_at", "approval"],
        sqlite_where=unsettled,
        postgresql_where=unsettled,
    )
