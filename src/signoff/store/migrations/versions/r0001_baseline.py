"""The tables of the first version."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TSVECTOR

revision = "r0001"
down_revision = None

_FREE_AT = "CASE WHEN claimed_until > due_at THEN claimed_until ELSE due_at END"
_TO_SEND = (
    "ended_at IS NULL AND (state = 'planned' OR (state IN ('sent', 'delivered', 'read') AND remind_at IS NOT NULL))"
)
_TO_CLOSE = "ended_at IS NOT NULL AND state IN ('planned', 'sent', 'delivered', 'read')"
_SQLITE_CLOCK = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
_POSTGRESQL_CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_TRIGGERS = {
    "sqlite": (
        f"""
        CREATE TRIGGER questions_over AFTER UPDATE OF ended_at, settled_at ON questions BEGIN
            UPDATE question_readers SET over_at = coalesce(NEW.ended_at, NEW.settled_at)
            WHERE approval = NEW.approval AND revision = NEW.revision;
            INSERT INTO unindexed_requests (approval, due_at) VALUES (NEW.approval, {_SQLITE_CLOCK})
            ON CONFLICT (approval) DO UPDATE SET due_at = excluded.due_at;
        END
        """,
        """
        CREATE TRIGGER questions_put_off AFTER UPDATE OF last_at ON questions BEGIN
            UPDATE question_readers SET last_at = NEW.last_at
            WHERE approval = NEW.approval AND revision = NEW.revision;
        END
        """,
        f"""
        CREATE TRIGGER questions_asked AFTER INSERT ON questions BEGIN
            INSERT INTO unindexed_requests (approval, due_at)
            VALUES (NEW.approval, CASE WHEN NEW.revision = 1 THEN NEW.last_at ELSE {_SQLITE_CLOCK} END)
            ON CONFLICT (approval) DO UPDATE SET due_at = excluded.due_at;
        END
        """,
        "CREATE VIRTUAL TABLE past_words USING fts5"
        "(words, content='past_requests', content_rowid='number', tokenize='ascii', detail='none')",
        """
        CREATE TRIGGER past_requests_added AFTER INSERT ON past_requests BEGIN
            INSERT INTO past_words (rowid, words) VALUES (NEW.number, NEW.words);
        END
        """,
        """
        CREATE TRIGGER past_requests_removed AFTER DELETE ON past_requests BEGIN
            INSERT INTO past_words (past_words, rowid, words) VALUES ('delete', OLD.number, OLD.words);
        END
        """,
    ),
    "postgresql": (
        """
        CREATE FUNCTION signoff_mark_readers() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
        BEGIN
            EXECUTE format(
                'UPDATE %I.question_readers SET over_at = $1, last_at = $2 WHERE approval = $3 AND revision = $4',
                TG_TABLE_SCHEMA
            ) USING coalesce(NEW.ended_at, NEW.settled_at), NEW.last_at, NEW.approval, NEW.revision;
            RETURN NULL;
        END
        $body$
        """,
        """
        CREATE TRIGGER questions_over AFTER UPDATE OF ended_at, settled_at, last_at ON questions
        FOR EACH ROW EXECUTE FUNCTION signoff_mark_readers()
        """,
        f"""
        CREATE FUNCTION signoff_index_later() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
        DECLARE
            due bigint := {_POSTGRESQL_CLOCK};
        BEGIN
            IF TG_OP = 'INSERT' AND NEW.revision = 1 THEN
                due := NEW.last_at;
            END IF;
            EXECUTE format(
                'INSERT INTO %I.unindexed_requests (approval, due_at) VALUES ($1, $2) '
                'ON CONFLICT (approval) DO UPDATE SET due_at = excluded.due_at', TG_TABLE_SCHEMA
            ) USING NEW.approval, due;
            RETURN NULL;
        END
        $body$
        """,
        """
        CREATE TRIGGER questions_indexed AFTER INSERT OR UPDATE OF ended_at, settled_at ON questions
        FOR EACH ROW EXECUTE FUNCTION signoff_index_later()
        """,
    ),
}


def upgrade() -> None:
    op.create_table(
        "answers",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("person_id", sa.String(length=200), nullable=False),
        sa.Column("delivery", sa.String(length=300), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("settles", sa.Boolean(), nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=False),
        sa.Column("handed_at", sa.BigInteger(), nullable=True),
        sa.Column("voided_at", sa.BigInteger(), nullable=True),
        sa.Column("arrived_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("approval", "number"),
    )
    op.create_index("answers_of_deliveries", "answers", ["approval", "revision", "delivery"], unique=True)
    op.create_index(
        "answers_owed",
        "answers",
        ["answered_at", "approval", "number", "handed_at", "voided_at"],
        unique=False,
        sqlite_where=sa.text("handed_at IS NULL AND voided_at IS NULL"),
        postgresql_where=sa.text("handed_at IS NULL AND voided_at IS NULL"),
    )
    op.create_index("answers_taken", "answers", ["answered_at"], unique=False)
    op.create_table(
        "arrivals",
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("free_at", sa.BigInteger(), sa.Computed(_FREE_AT, persisted=True), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("speaker", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("arrivals_by_speaker", "arrivals", ["speaker", "received_at"], unique=False)
    op.create_index(
        "arrivals_due",
        "arrivals",
        ["channel", "free_at", "key"],
        unique=False,
        sqlite_where=sa.text("state = 'new'"),
        postgresql_where=sa.text("state = 'new'"),
    )
    op.create_index("arrivals_counted", "arrivals", ["state", "due_at", "received_at"], unique=False)
    op.create_table(
        "audit_checkpoints",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("signature", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_table(
        "audit_heads",
        sa.Column("stream", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("covered", sa.BigInteger(), nullable=False),
        sa.Column("numbered", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("stream"),
    )
    op.create_index(
        "audit_heads_grown",
        "audit_heads",
        ["stream"],
        unique=False,
        sqlite_where=sa.text("seq > numbered"),
        postgresql_where=sa.text("seq > numbered"),
    )
    op.create_table(
        "audit_records",
        sa.Column("stream", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("written_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "seq"),
    )
    op.create_index("audit_records_keys", "audit_records", ["stream", "key"], unique=True)
    op.create_table(
        "blob_sessions",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("kept_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", "tenant", "session"),
    )
    op.create_index("blob_sessions_age", "blob_sessions", ["kept_at", "sha256"], unique=False)
    op.create_index("blob_sessions_of", "blob_sessions", ["tenant", "session"], unique=False)
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
    )
    op.create_table(
        "call_joins",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.String(length=64), nullable=False),
        sa.Column("proposed_at", sa.BigInteger(), nullable=False),
        sa.Column("given", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("call_joins_age", "call_joins", ["proposed_at"], unique=False)
    op.create_table(
        "completions",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("completions_age", "completions", ["kept_at"], unique=False)
    op.create_table(
        "contacts",
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("identity", sa.String(length=200), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("noted_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "identity"),
    )
    op.create_table(
        "counted_acts",
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("counted_acts_lately", "counted_acts", ["kind", "tenant", "at"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("token", sa.String(length=26), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=400), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("vendor_id", sa.String(length=500), nullable=False),
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("code", sa.String(length=100), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("free_at", sa.BigInteger(), sa.Computed(_FREE_AT, persisted=True), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("remind_at", sa.BigInteger(), nullable=True),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("token"),
    )
    op.create_index("deliveries_by_address", "deliveries", ["channel", "address", "state"], unique=False)
    op.create_index("deliveries_by_vendor", "deliveries", ["channel", "vendor_id"], unique=False)
    op.create_index("deliveries_cards", "deliveries", ["approval", "revision", "person", "channel"], unique=True)
    op.create_index("deliveries_due", "deliveries", ["state", "due_at"], unique=False)
    op.create_index(
        "deliveries_to_send",
        "deliveries",
        ["channel", "tenant", "free_at", "token"],
        unique=False,
        sqlite_where=sa.text(_TO_SEND),
        postgresql_where=sa.text(_TO_SEND),
    )
    op.create_index(
        "deliveries_to_close",
        "deliveries",
        ["channel", "tenant", "free_at", "token"],
        unique=False,
        sqlite_where=sa.text(_TO_CLOSE),
        postgresql_where=sa.text(_TO_CLOSE),
    )
    op.create_index(
        "deliveries_unfinished",
        "deliveries",
        ["created_at", "token"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "deliveries_endings",
        "deliveries",
        ["ended_at", "state"],
        unique=False,
        sqlite_where=sa.text("state IN ('sent', 'delivered', 'read') AND ended_at IS NOT NULL"),
        postgresql_where=sa.text("state IN ('sent', 'delivered', 'read') AND ended_at IS NOT NULL"),
    )
    op.create_index(
        "deliveries_retried",
        "deliveries",
        ["due_at", "created_at", "state", "attempts"],
        unique=False,
        sqlite_where=sa.text("state = 'planned' AND attempts > 0"),
        postgresql_where=sa.text("state = 'planned' AND attempts > 0"),
    )
    op.create_table(
        "event_deliveries",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("subscription", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("code", sa.String(length=100), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.Column("free_at", sa.BigInteger(), sa.Computed(_FREE_AT, persisted=True), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index(
        "event_deliveries_dead",
        "event_deliveries",
        ["tenant", "number"],
        unique=False,
        sqlite_where=sa.text("state = 'dead'"),
        postgresql_where=sa.text("state = 'dead'"),
    )
    op.create_index(
        "event_deliveries_due",
        "event_deliveries",
        ["subscription", "tenant", "free_at", "key"],
        unique=False,
        sqlite_where=sa.text("state = 'new'"),
        postgresql_where=sa.text("state = 'new'"),
    )
    op.create_index(
        "event_deliveries_counted",
        "event_deliveries",
        ["state", "subscription", "tenant", "due_at", "created_at"],
        unique=False,
    )
    op.create_table(
        "event_facts",
        sa.Column("stream", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("stream", "key"),
    )
    op.create_table(
        "event_heads",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
    )
    op.create_table(
        "event_sources",
        sa.Column("name", sa.String(length=32), nullable=False),
        sa.Column("moment", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "events",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("stream", sa.String(length=200), nullable=False),
        sa.Column("call", sa.String(length=32), nullable=False),
        sa.Column("actor", sa.String(length=64), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("numbered_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "number"),
    )
    op.create_index("events_age", "events", ["numbered_at"], unique=False)
    op.create_index("events_of_streams", "events", ["stream", "number"], unique=False)
    op.create_table(
        "footers",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("code", sa.String(length=8), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=False),
        sa.Column("known_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "person", "digest", "code"),
    )
    op.create_table(
        "absences",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("until_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "person"),
    )
    op.create_table(
        "taken_requests",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("approval"),
    )
    op.create_index("taken_requests_age", "taken_requests", ["tenant", "taken_at"], unique=False)
    op.create_table(
        "freezes",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("frozen_by", sa.String(length=64), nullable=False),
        sa.Column("frozen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant"),
    )
    op.create_table(
        "grant_uses",
        sa.Column("grant_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("grant_id", "key"),
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("tool", sa.String(length=64), nullable=False),
        sa.Column("definition", sa.String(length=64), nullable=False),
        sa.Column("exact", sa.String(length=64), nullable=False),
        sa.Column("predicate", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("policy_hash", sa.String(length=64), nullable=False),
        sa.Column("verdict", sa.String(length=8), nullable=False),
        sa.Column("people", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("approval_id", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("requester", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("revoked_by", sa.String(length=64), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("grants_age", "grants", ["expires_at"], unique=False)
    op.create_index("grants_by_tool", "grants", ["tenant", "tool"], unique=False)
    op.create_index("grants_of_approvals", "grants", ["approval_id"], unique=False)
    op.create_table(
        "keys",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "opened_values",
        sa.Column("question_hash", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("page", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("question_hash", "tenant", "person", "page"),
    )
    op.create_table(
        "own_messages",
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("vendor_id", sa.String(length=500), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("channel", "vendor_id"),
    )
    op.create_index("own_messages_age", "own_messages", ["sent_at"], unique=False)
    op.create_table(
        "passkey_challenges",
        sa.Column("nonce", sa.String(length=32), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("nonce"),
    )
    op.create_index("passkey_challenges_of_people", "passkey_challenges", ["tenant", "person"], unique=False)
    op.create_table(
        "passkeys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("counter", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("passkeys_of_people", "passkeys", ["tenant", "person"], unique=False)
    op.create_table(
        "people",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("ended_by", sa.String(length=64), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "person"),
    )
    op.create_table(
        "probes",
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "questions",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.String(length=64), nullable=False),
        sa.Column("code", sa.String(length=6), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_as", sa.String(length=16), nullable=True),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("approval", "revision"),
    )
    op.create_index(
        "questions_codes",
        "questions",
        ["tenant", "code"],
        unique=True,
        sqlite_where=sa.text("revision = 1"),
        postgresql_where=sa.text("revision = 1"),
    )
    op.create_index("questions_ended", "questions", ["ended_at"], unique=False)
    op.create_index("questions_opened", "questions", ["opened_at", "approval"], unique=False)
    op.create_index("questions_turns", "questions", ["tenant", "session", "turn"], unique=False)
    op.create_index(
        "questions_unsettled",
        "questions",
        ["tenant", "last_at", "approval", "ended_at", "settled_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL AND settled_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL AND settled_at IS NULL"),
    )
    op.create_index(
        "questions_deadlines",
        "questions",
        ["last_at", "approval", "tenant", "opened_at", "settled_at", "ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "push_subscriptions",
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=100), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("added_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "person", "id"),
    )
    op.create_index("push_subscriptions_of_browsers", "push_subscriptions", ["id"], unique=False)
    op.create_table(
        "question_readers",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("reader", sa.String(length=300), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("last_at", sa.BigInteger(), nullable=False),
        sa.Column("over_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("approval", "revision", "reader"),
    )
    op.create_index(
        "question_readers_waiting",
        "question_readers",
        ["tenant", "reader", "last_at", "approval", "revision"],
        unique=False,
        sqlite_where=sa.text("over_at IS NULL"),
        postgresql_where=sa.text("over_at IS NULL"),
    )
    op.create_table(
        "past_requests",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("stream", sa.String(length=200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("readers", sa.Text(), nullable=False),
        sa.Column("words", sa.Text().with_variant(TSVECTOR(), "postgresql"), nullable=False),
        sa.PrimaryKeyConstraint("number"),
    )
    op.create_index("past_requests_approvals", "past_requests", ["approval"], unique=True)
    op.create_index("past_requests_streams", "past_requests", ["stream"], unique=False)
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "past_requests_words",
            "past_requests",
            ["words"],
            unique=False,
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        )
    op.create_table(
        "sign_in_links",
        sa.Column("link", sa.String(length=64), nullable=False),
        sa.Column("browser", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("next", sa.String(length=500), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("link"),
    )
    op.create_index("sign_in_links_of_people", "sign_in_links", ["tenant", "person"], unique=False)
    op.create_table(
        "unindexed_requests",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("approval"),
    )
    op.create_index("unindexed_requests_due", "unindexed_requests", ["due_at", "approval"], unique=False)
    for statement in _TRIGGERS[op.get_bind().dialect.name]:
        op.get_bind().exec_driver_sql(statement)
    op.create_table(
        "raw_answers",
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("arrived_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("raw_answers_arrived", "raw_answers", ["arrived_at", "key"], unique=False)
    op.create_index("raw_answers_of_approvals", "raw_answers", ["approval"], unique=False)
    op.create_table(
        "raw_receipts",
        sa.Column("key", sa.String(length=300), nullable=False),
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("delivery", sa.String(length=300), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("taken_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("raw_receipts_of_approvals", "raw_receipts", ["approval"], unique=False)
    op.create_table(
        "readings",
        sa.Column("name", sa.String(length=16), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("read_at", sa.BigInteger(), nullable=False),
        sa.Column("renew_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "refusals",
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("hour", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "hour"),
    )
    op.create_table(
        "request_messages",
        sa.Column("approval", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("author", sa.String(length=8), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("written_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("approval", "number"),
    )
    op.create_index("request_messages_written", "request_messages", ["author", "written_at"], unique=False)
    op.create_table(
        "restorations",
        sa.Column("at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("at"),
    )
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("assurance", sa.String(length=8), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("token", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_table(
        "subscriptions",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "tenant"),
    )
    op.create_table(
        "tickets",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("workflow", sa.String(length=200), nullable=False),
        sa.Column("call", sa.String(length=32), nullable=False),
        sa.Column("tool", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("claimed_at", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=True),
        sa.Column("late_report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("tickets_age", "tickets", ["claimed_at", "key"], unique=False)
    op.create_index("tickets_by_call", "tickets", ["workflow", "call"], unique=False)
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("person", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "uses",
        sa.Column("key", sa.String(length=80), nullable=False),
        sa.Column("tenant", sa.String(length=64), nullable=False),
        sa.Column("tool", sa.String(length=300), nullable=False),
        sa.Column("person", sa.String(length=200), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.String(length=64), nullable=False),
        sa.Column("call", sa.String(length=32), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=False),
        sa.Column("returned_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("uses_age", "uses", ["used_at"], unique=False)
    op.create_index("uses_by_tool", "uses", ["tenant", "tool", "used_at"], unique=False)
