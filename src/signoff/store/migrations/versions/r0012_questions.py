"""What people are asked and what they answered."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Text, text

revision = "r0012"
down_revision = "r0011"


def upgrade() -> None:
    """Make both tables; what turns wrote for the dispatcher of cards is read from them from now on."""
    op.create_table(
        "questions",
        Column("approval", String(200), primary_key=True),
        Column("revision", Integer, primary_key=True, autoincrement=False),
        Column("tenant", String(64), nullable=False),
        Column("session", String(64), nullable=False),
        Column("turn", String(64), nullable=False),
        Column("code", String(6), nullable=False),
        Column("body", Text, nullable=False),
        Column("opened_at", BigInteger, nullable=False),
        Column("last_at", BigInteger, nullable=False),
        Column("ended_at", BigInteger, nullable=True),
        Column("ended_as", String(16), nullable=True),
    )
    first = text("revision = 1")
    op.create_index(
        "questions_codes", "questions", ["tenant", "code"], unique=True, sqlite_where=first, postgresql_where=first
    )
    op.drop_table("notices")
    op.create_index("questions_turns", "questions", ["tenant", "session", "turn"])
    op.create_index("questions_opened", "questions", ["opened_at"])
    op.create_index("questions_ended", "questions", ["ended_at"])
    op.create_index("questions_waiting", "questions", ["tenant", "ended_at", "last_at"])
    op.create_table(
        "answers",
        Column("approval", String(200), primary_key=True),
        Column("number", Integer, primary_key=True, autoincrement=False),
        Column("revision", Integer, nullable=False),
        Column("person_id", String(200), nullable=False),
        Column("delivery", String(300), nullable=False),
        Column("body", Text, nullable=False),
        Column("settles", Boolean, nullable=False),
        Column("answered_at", BigInteger, nullable=False),
        Column("handed_at", BigInteger, nullable=True),
    )
    op.create_index("answers_of_deliveries", "answers", ["approval", "revision", "delivery"], unique=True)
    op.create_index("answers_taken", "answers", ["answered_at"])
    op.create_index("answers_owed", "answers", ["handed_at", "answered_at"])
