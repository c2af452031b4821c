"""Declares the tables of the store, and its clock. Every change needs a step in store/migrations/."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

METADATA: Final = MetaData()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = text("revision = 1")
_GROWN: Final = text("seq > numbered")
_OPEN: Final = text("ended_at IS NULL")
_UNSETTLED: Final = text("ended_at IS NULL AND settled_at IS NULL")
_DEAD: Final = text("state = 'dead'")
_FREE_AT: Final = "CASE WHEN claimed_until > due_at THEN claimed_until ELSE due_at END"
"""The time from which a row of a queue may be claimed."""
TO_SEND: Final = text(
    "ended_at IS NULL AND (state = 'planned' OR (state IN ('sent', 'delivered', 'read') AND remind_at IS NOT NULL))"
)
"""Planned cards, and sent cards with a reminder."""
TO_CLOSE: Final = text("ended_at IS NOT NULL AND state IN ('planned', 'sent', 'delivered', 'read')")
"""Cards that may be out although their request has ended."""
UNDONE: Final = text("state = 'new'")
"""Arrivals not yet processed, and events not yet delivered."""
_NOT_OVER: Final = text("over_at IS NULL")
_OWED: Final = text("handed_at IS NULL AND voided_at IS NULL")
OUT_AND_OVER: Final = text("state IN ('sent', 'delivered', 'read') AND ended_at IS NOT NULL")
"""Matches cards to close. SQLite uses a partial index only if the query repeats its condition word for word."""
RETRIED: Final = text("state = 'planned' AND attempts > 0")
"""Matches unsent cards that were tried."""


# `julianday` is a double, which may be just below a whole millisecond. CAST alone would drop that millisecond.
_SQLITE_CLOCK: Final = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
# Do not use `now()`, the start of the transaction, which may have waited for a lock since.
_POSTGRESQL_CLOCK: Final = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


class StoreClock(FunctionElement[int]):
    """The SQL function for the database's present time, in milliseconds since 1970 in UTC."""

    type = BigInteger()
    inherit_cache = True


@compiles(StoreClock, "sqlite")
def _sqlite_clock(element: StoreClock, compiler: Any, **options: Any) -> str:
    return _SQLITE_CLOCK


@compiles(StoreClock, "postgresql")
def _postgresql_clock(element: StoreClock, compiler: Any, **options: Any) -> str:
    return _POSTGRESQL_CLOCK


NOW: Final = select(StoreClock()).scalar_subquery()
"""The clock, read once in a statement.

PostgreSQL seeks in an index only by such a time. It compares the clock itself with row after row.
"""


BLOBS: Final = Table(
    "blobs",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("size", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Bytes by their hash."""

BLOB_SESSIONS: Final = Table(
    "blob_sessions",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("session", String(64), primary_key=True),
    Column("kept_at", BigInteger, nullable=False, default=StoreClock()),
    Index("blob_sessions_age", "kept_at", "sha256"),
    Index("blob_sessions_of", "tenant", "session"),
)
"""The sessions whose turns may name a blob.

The workflow histories with these names are invisible to the store. A row without a session means that the store owns
the blob and keeps it permanently. `kept_at` is the last time at which the blob was stored for the session.
"""

TICKETS: Final = Table(
    "tickets",
    METADATA,
    Column("key", String(80), primary_key=True),
    Column("workflow", String(200), nullable=False),
    Column("call", String(32), nullable=False),
    Column("tool", String(64), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("state", String(8), nullable=False),
    Column("outcome", Text, nullable=True),
    Column("claimed_at", BigInteger, nullable=False, default=StoreClock()),
    Column("finished_at", BigInteger, nullable=True),
    Column("nonce", String(64), nullable=False),
    Column("seen_at", BigInteger, nullable=True),
    Column("late_report", Text, nullable=True),
    Index("tickets_by_call", "workflow", "call"),
    Index("tickets_age", "claimed_at", "key"),
)
"""One row for each side effect.

`nonce` comes from the principal of the row's turn, and separates two turns with the same id. `seen_at` is the last sign
of life of the process that runs it. `state` is `claimed`, `done` or `void`. `outcome` is a `CallOutcome` as JSON, and
`late_report` a `LateReport`, which changes neither of them.
"""

QUESTIONS: Final = Table(
    "questions",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("tenant", String(64), nullable=False),
    Column("session", String(64), nullable=False),
    Column("turn", String(64), nullable=False),
    Column("code", String(6), nullable=False),
    Column("body", Text, nullable=False),
    Column("opened_at", BigInteger, nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("asked_at", BigInteger, nullable=True),
    Column("ended_at", BigInteger, nullable=True),
    Column("ended_as", String(16), nullable=True),
    Column("settled_at", BigInteger, nullable=True),
    # A code names one approval of a tenant as long as its row is kept. Later revisions have the first one's code.
    Index("questions_codes", "tenant", "code", unique=True, sqlite_where=_FIRST, postgresql_where=_FIRST),
    # Contains exactly the waiting rows in the order of lists. The last two columns let SQLite count without the rows.
    Index(
        "questions_unsettled",
        *("tenant", "last_at", "approval", "ended_at", "settled_at"),
        sqlite_where=_UNSETTLED,
        postgresql_where=_UNSETTLED,
    ),
    # For readers of all tenants, by deadline. It has every column that the gauges read.
    Index(
        "questions_deadlines",
        *("last_at", "approval", "tenant", "opened_at", "settled_at", "ended_at"),
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    ),
    Index("questions_turns", "tenant", "session", "turn"),
    Index("questions_opened", "opened_at", "approval"),
    Index("questions_ended", "ended_at"),
)
"""Questions for approvers.

`body` is a `Question` as JSON. `last_at` is the latest time of its deadline, and `asked_at` that of the approver's
question that moved it.

Rows are never changed, except for the question and the end, which are set once, and `settled_at`. That is the time at
which an answer settled the question or a newer revision replaced it. It is used only to count and list waiting
requests.
"""

QUESTION_READERS: Final = Table(
    "question_readers",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("reader", String(300), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("last_at", BigInteger, nullable=False),
    Column("over_at", BigInteger, nullable=True),
    # In the order of lists: a page steps over no past request.
    Index(
        "question_readers_waiting",
        *("tenant", "reader", "last_at", "approval", "revision"),
        sqlite_where=_NOT_OVER,
        postgresql_where=_NOT_OVER,
    ),
)
"""The approver entries that a question may ever concern, and `user:` of everyone who answered it.

Lists use them to find a reader's questions. They give no permission to read a question. `tenant` and `last_at` repeat
the question's. A trigger of the store repeats `last_at`, and `ended_at`, or else `settled_at`, as `over_at`: workers
may only insert these rows.
"""

PAST_REQUESTS: Final = Table(
    "past_requests",
    METADATA,
    # The milliseconds of its end and a slot, so that one column is the order, the key and the date.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("approval", String(200), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("stream", String(200), nullable=False),
    Column("body", Text, nullable=False),
    Column("readers", Text, nullable=False),
    Column("words", Text().with_variant(TSVECTOR, "postgresql"), nullable=False),
    Index("past_requests_approvals", "approval", unique=True),
    Index("past_requests_streams", "stream"),
    # Its own list of new rows would be read from beginning to end by every search.
    Index("past_requests_words", "words", postgresql_using="gin", postgresql_with={"fastupdate": "off"}).ddl_if(
        dialect="postgresql"
    ),
)
"""Past requests, as their readers see them, for searches.

`body` is a `PastRequest` as JSON, `readers` its audience. `words` are the words of the masked card, and marks of
readers, tool, people and so on. SQLite indexes them in the table `past_words`, kept by triggers.
"""

UNINDEXED_REQUESTS: Final = Table(
    "unindexed_requests",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("due_at", BigInteger, nullable=False),
    Index("unindexed_requests_due", "due_at", "approval"),
)
"""Requests whose row in `past_requests` is missing or old. Triggers of `questions` add them.

`due_at` is the time of the change, or the deadline of a first question.
"""

TRIGGERS: Final[Mapping[str, tuple[str, ...]]] = {
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
        # Runs with the rights of the tables' owner, and names the schema itself.
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
"""By dialect, the statements that create the triggers, and the full-text index of SQLite."""

ANSWERS: Final = Table(
    "answers",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("revision", Integer, nullable=False),
    Column("person_id", String(200), nullable=False),
    Column("delivery", String(300), nullable=False),
    Column("body", Text, nullable=False),
    Column("settles", Boolean, nullable=False),
    Column("answered_at", BigInteger, nullable=False),
    Column("handed_at", BigInteger, nullable=True),
    Column("voided_at", BigInteger, nullable=True),
    Column("arrived_at", BigInteger, nullable=True),
    Index("answers_of_deliveries", "approval", "revision", "delivery", unique=True),
    # In the order of hand-over. The last two columns let SQLite count without the rows.
    Index(
        "answers_owed",
        *("answered_at", "approval", "number", "handed_at", "voided_at"),
        sqlite_where=_OWED,
        postgresql_where=_OWED,
    ),
    Index("answers_taken", "answered_at"),
)
"""People's answers, in the order of acceptance.

`body` is a `Vote` as JSON, with the signed decision. `settles` means that the request waits for no further answer.
`arrived_at` is the arrival by a channel, or else the time of storing. `handed_at` is when the turn received it.

`voided_at` is the time since when it does not count: an approval that its turn did not take, an undone denial, or the
undo itself. The question that it settled waits again.
"""

REQUEST_MESSAGES: Final = Table(
    "request_messages",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("author", String(8), nullable=False),
    Column("body", Text, nullable=False),
    Column("written_at", BigInteger, nullable=False, default=StoreClock()),
    # The agent has still to answer the latest message of an approver.
    Index("request_messages_written", "author", "written_at"),
)
"""Approvers' questions about waiting requests, and the agents' answers.

`author` is `approver` or `agent`. `body` is a `RequestMessage` as JSON.
"""

RAW_ANSWERS: Final = Table(
    "raw_answers",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("approval", String(200), nullable=False),
    Column("body", Text, nullable=False),
    Column("arrived_at", BigInteger, nullable=False, default=StoreClock()),
    Index("raw_answers_of_approvals", "approval"),
    Index("raw_answers_arrived", "arrived_at", "key"),
)
"""Unsigned answers received by Temporal Signals or Updates.

`body` is a `Decision` as JSON.
"""

RAW_RECEIPTS: Final = Table(
    "raw_receipts",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("approval", String(200), nullable=False),
    Column("delivery", String(300), nullable=False),
    Column("body", Text, nullable=False),
    Column("taken_at", BigInteger, nullable=False, default=StoreClock()),
    Index("raw_receipts_of_approvals", "approval"),
)
"""The receipt of each raw answer.

`body` is a `Receipt` as JSON, `delivery` the delivery id of the row in `answers`, if any.
"""

KEYS: Final = Table(
    "keys",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Secrets made by the store."""

TOKENS: Final = Table(
    "tokens",
    METADATA,
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
"""Personal API tokens. `digest` is the SHA-256 of the secret, `id` its first characters."""

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("assurance", String(8), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("token", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
"""Browsers of signed-in people.

`digest` is the SHA-256 of the cookie, `token` the id of the token used to sign in, or empty.
"""

PEOPLE: Final = Table(
    "people",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("body", Text, nullable=False),
    Column("seen_at", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("ended_by", String(64), nullable=True),
    Column("ended_at", BigInteger, nullable=True),
)
"""Undeclared people, as described by their last sign-in.

`body` is a `VouchedPerson` as JSON, signed by the gateway.
"""

PASSKEYS: Final = Table(
    "passkeys",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("body", Text, nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("added_at", BigInteger, nullable=False, default=StoreClock()),
    Column("used_at", BigInteger, nullable=True),
    Index("passkeys_of_people", "tenant", "person"),
)
"""Passkeys of people.

`id` is the SHA-256 of the credential's id, `body` a `Passkey` as JSON, signed by the gateway. `counter` is the highest
number of signatures that its authenticator has stated.
"""

PASSKEY_CHALLENGES: Final = Table(
    "passkey_challenges",
    METADATA,
    Column("nonce", String(32), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("made_at", BigInteger, nullable=False, default=StoreClock()),
    Index("passkey_challenges_of_people", "tenant", "person"),
)
"""Nonces of open challenges for passkeys. A row is deleted by its use."""

PUSH_SUBSCRIPTIONS: Final = Table(
    "push_subscriptions",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("key", String(100), nullable=False),
    Column("body", Text, nullable=False),
    Column("added_at", BigInteger, nullable=False, default=StoreClock()),
    Index("push_subscriptions_of_browsers", "id"),
)
"""Browsers that show people's notifications.

`body` is a `PushSubscription` as JSON, and `id` the SHA-256 of its endpoint. `key` is the public key for which the
browser made it.
"""

SIGN_IN_LINKS: Final = Table(
    "sign_in_links",
    METADATA,
    Column("link", String(64), primary_key=True),
    Column("browser", String(64), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("next", String(500), nullable=False),
    Column("made_at", BigInteger, nullable=False, default=StoreClock()),
    Index("sign_in_links_of_people", "tenant", "person"),
)
"""Open links for the sign-in by email. `link` and `browser` are the SHA-256 of the link and of the asking browser."""

FREEZES: Final = Table(
    "freezes",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("frozen_by", String(64), nullable=False),
    Column("frozen_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Tenants whose tools do not run."""

ABSENCES: Final = Table(
    "absences",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("until_at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
)
"""People who are or will be away, by their own signed statement."""

TAKEN_REQUESTS: Final = Table(
    "taken_requests",
    METADATA,
    Column("approval", String(200), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("taken_at", BigInteger, nullable=False, default=StoreClock()),
    Index("taken_requests_age", "tenant", "taken_at"),
)
"""Requests that a person has taken in a room. Gives no right: a row only informs others, and lapses soon."""

GRANTS: Final = Table(
    "grants",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("session", String(64), nullable=False),
    Column("tool", String(64), nullable=False),
    Column("definition", String(64), nullable=False),
    Column("exact", String(64), nullable=False),
    Column("predicate", Text, nullable=False),
    Column("rule", Text, nullable=False),
    Column("policy_hash", String(64), nullable=False),
    Column("verdict", String(8), nullable=False),
    Column("people", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("approval_id", String(200), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("uses", Integer, nullable=False),
    Column("requester", String(64), nullable=False),
    Column("actor", Text, nullable=False),
    Column("revoked_by", String(64), nullable=True),
    Column("revoked_at", BigInteger, nullable=True),
    Index("grants_by_tool", "tenant", "tool"),
    Index("grants_of_approvals", "approval_id"),
    Index("grants_age", "expires_at"),
)
"""Grants, the "remembered answers".

`exact` is a digest of arguments, `predicate` a CEL expression over them. One of the two is empty. `people` contains ids
separated by spaces, `requester` the requester's id. The remaining uses are `uses` minus the rows in `grant_uses`, so
that a use does not change this table.
"""

GRANT_USES: Final = Table(
    "grant_uses",
    METADATA,
    Column("grant_id", String(64), primary_key=True),
    Column("key", String(80), primary_key=True),
    Column("used_at", BigInteger, nullable=False, default=StoreClock()),
)
"""The tickets claimed with each grant, or the calls denied by a denial."""

USES: Final = Table(
    "uses",
    METADATA,
    Column("key", String(80), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("tool", String(300), nullable=False),
    Column("person", String(200), nullable=False),
    Column("session", String(64), nullable=False),
    Column("turn", String(64), nullable=False),
    Column("call", String(32), nullable=False),
    Column("used_at", BigInteger, nullable=False, default=StoreClock()),
    Column("returned_at", BigInteger, nullable=True),
    Index("uses_by_tool", "tenant", "tool", "used_at"),
    Index("uses_age", "used_at"),
)
"""One row for each use of a tool with a limited number of uses, under its ticket's key.

`returned_at` is set if the call failed. `tool` is the tool's activity.
"""

DELIVERIES: Final = Table(
    "deliveries",
    METADATA,
    Column("token", String(26), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("approval", String(200), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("person", String(64), nullable=False),
    Column("channel", String(64), nullable=False),
    Column("address", String(400), nullable=False),
    Column("state", String(16), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("vendor_id", String(500), nullable=False),
    Column("handle", Text, nullable=False),
    Column("code", String(100), nullable=False),
    Column("message", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False, default=StoreClock()),
    Column("claimed_until", BigInteger, nullable=False),
    Column("free_at", BigInteger, Computed(_FREE_AT, persisted=True), nullable=False),
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
    Column("sent_at", BigInteger, nullable=True),
    Column("changed_at", BigInteger, nullable=False, default=StoreClock()),
    Column("ended_at", BigInteger, nullable=True),
    Column("closed_at", BigInteger, nullable=True),
    Column("request", Text, nullable=False),
    Column("remind_at", BigInteger, nullable=True),
    Column("tried_at", BigInteger, nullable=True),
    # A person's card with a further answer of the agent has another token: planning never sends both. A replaced card
    # has its own name in `approval`.
    Index("deliveries_cards", "approval", "revision", "person", "channel", unique=True),
    Index("deliveries_by_vendor", "channel", "vendor_id"),
    Index("deliveries_by_address", "channel", "address", "state"),
    Index("deliveries_due", "state", "due_at"),
    # Queues, in the order of claims: a claim reads only the rows that it takes.
    Index(
        "deliveries_to_send", "channel", "tenant", "free_at", "token", sqlite_where=TO_SEND, postgresql_where=TO_SEND
    ),
    Index(
        "deliveries_to_close", "channel", "tenant", "free_at", "token", sqlite_where=TO_CLOSE, postgresql_where=TO_CLOSE
    ),
    Index("deliveries_unfinished", "created_at", "token", sqlite_where=_OPEN, postgresql_where=_OPEN),
    # Only for the gauges, with every column that they read.
    Index("deliveries_endings", "ended_at", "state", sqlite_where=OUT_AND_OVER, postgresql_where=OUT_AND_OVER),
    Index(
        "deliveries_retried",
        *("due_at", "created_at", "state", "attempts"),
        sqlite_where=RETRIED,
        postgresql_where=RETRIED,
    ),
)
"""One row for each card: a request as shown to one person on one channel.

`handle` is JSON of the channel. `request` is an `ApprovalRequest` as JSON, in its end state once `ended_at` is set.
`tried_at` is the start of the first attempt to send the card.
"""

ARRIVALS: Final = Table(
    "arrivals",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("channel", String(64), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("body", Text, nullable=False),
    Column("received_at", BigInteger, nullable=False, default=StoreClock()),
    Column("due_at", BigInteger, nullable=False, default=StoreClock()),
    Column("claimed_until", BigInteger, nullable=False),
    Column("free_at", BigInteger, Computed(_FREE_AT, persisted=True), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("state", String(8), nullable=False),
    Column("result", Text, nullable=True),
    Column("speaker", String(64), nullable=False),
    Index("arrivals_due", "channel", "free_at", "key", sqlite_where=UNDONE, postgresql_where=UNDONE),
    Index("arrivals_counted", "state", "due_at", "received_at"),
    Index("arrivals_by_speaker", "speaker", "received_at"),
)
"""Messages received by channels, stored before processing.

`state` is `new`, `done` or `dropped`.
"""

FOOTERS: Final = Table(
    "footers",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("code", String(8), primary_key=True),
    Column("asked_at", BigInteger, nullable=False, default=StoreClock()),
    Column("known_at", BigInteger, nullable=True),
)
"""Blocks below people's sign-offs that may have been part of an answer.

`digest` is a block's SHA-256, `code` that of the request being answered. `known_at` is when the person confirmed that
the block has no meaning.
"""

OWN_MESSAGES: Final = Table(
    "own_messages",
    METADATA,
    Column("channel", String(64), primary_key=True),
    Column("vendor_id", String(500), primary_key=True),
    Column("tenant", String(64), nullable=False),
    Column("person", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("sent_at", BigInteger, nullable=False, default=StoreClock()),
    Index("own_messages_age", "sent_at"),
)
"""Messages sent by channels in addition to cards, by the vendor's id.

`content` is JSON with the message's requests and words.
"""

CONTACTS: Final = Table(
    "contacts",
    METADATA,
    Column("channel", String(64), primary_key=True),
    Column("identity", String(200), primary_key=True),
    Column("content", Text, nullable=False),
    Column("noted_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Where a channel can write to a person, as the vendor's verified messages show it.

`content` is JSON in the channel's own form.
"""

COMPLETIONS: Final = Table(
    "completions",
    METADATA,
    Column("key", String(80), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("kept_at", BigInteger, nullable=False, default=StoreClock()),
    Index("completions_age", "kept_at"),
)
"""Model replies by the turn's run and the completion's number.

`body` is a `ModelReply` as JSON.
"""

OPENED_VALUES: Final = Table(
    "opened_values",
    METADATA,
    Column("question_hash", String(64), primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("page", Integer, primary_key=True),
    Column("opened_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Pages of a question's values that each person opened, if its card does not show all.

Only the gateway uses this table.
"""

AUDIT_HEADS: Final = Table(
    "audit_heads",
    METADATA,
    Column("stream", String(200), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("covered", BigInteger, nullable=False),
    Column("numbered", BigInteger, nullable=False, server_default=text("0")),
    # Contains only the streams that have grown. A search every few seconds reads no others.
    Index("audit_heads_grown", "stream", sqlite_where=_GROWN, postgresql_where=_GROWN),
)
"""The last record of each stream.

Also the last record covered by the checkpoints and the last one turned into events. A writer locks the row of its
stream.
"""

AUDIT_RECORDS: Final = Table(
    "audit_records",
    METADATA,
    Column("stream", String(200), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("key", String(200), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", String(32), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("data", Text, nullable=False),
    Column("prev", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("written_at", BigInteger, nullable=False),
    # The log checks the same under its lock: no retry writes the same entry twice.
    Index("audit_records_keys", "stream", "key", unique=True),
)
"""The audit log, chained by hash within each stream.

Rows are only added. `at` is ISO 8601 in UTC.
"""

AUDIT_CHECKPOINTS: Final = Table(
    "audit_checkpoints",
    METADATA,
    # Counted under the chain's lock. A database sequence would leave gaps, and a gap means that a checkpoint was
    # removed.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("key_id", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)
"""Signed statements of the length of the streams, each naming the previous one."""

EVENT_HEADS: Final = Table(
    "event_heads",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""The number of each tenant's newest event.

The row of the empty tenant is locked while numbering, and is always 0.
"""

EVENTS: Final = Table(
    "events",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    # Counted under a lock: a sequence would assign a number before it is known whether, and when, its row commits.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", String(200), nullable=False),
    Column("call", String(32), nullable=False),
    Column("actor", String(64), nullable=False),
    Column("private", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("numbered_at", BigInteger, nullable=False, default=StoreClock()),
    Index("events_of_streams", "stream", "number"),
    Index("events_age", "numbered_at"),
)
"""Events for external programs, in the order of their numbers.

`body` is a `CloudEvent` as JSON, without its number. `actor` is the actor of the call, if known. `private` marks calls
of a specialist. Rows are deleted after `SIGNOFF_EVENT_DAYS`.
"""

EVENT_FACTS: Final = Table(
    "event_facts",
    METADATA,
    Column("stream", String(200), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("body", Text, nullable=False),
)
"""Event data that is not in the record, kept until the event is numbered.

The key is the record's stream and key. `body` is JSON.
"""

EVENT_SOURCES: Final = Table(
    "event_sources",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("moment", BigInteger, nullable=False),
)
"""The time up to which the gateway has followed each event source, in ms since 1970."""

EVENT_DELIVERIES: Final = Table(
    "event_deliveries",
    METADATA,
    Column("key", String(80), primary_key=True),
    Column("subscription", String(64), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("code", String(100), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", BigInteger, nullable=False, default=StoreClock()),
    Column("claimed_until", BigInteger, nullable=False),
    Column("free_at", BigInteger, Computed(_FREE_AT, persisted=True), nullable=False),
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
    Index(
        "event_deliveries_due",
        "subscription",
        "tenant",
        "free_at",
        "key",
        sqlite_where=UNDONE,
        postgresql_where=UNDONE,
    ),
    Index("event_deliveries_dead", "tenant", "number", sqlite_where=_DEAD, postgresql_where=_DEAD),
    Index("event_deliveries_counted", "state", "subscription", "tenant", "due_at", "created_at"),
)
"""Events still to be delivered to subscriptions.

`state` is `new` or `dead`.

A delivered event has no row.
"""

SUBSCRIPTIONS: Final = Table(
    "subscriptions",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""The last event processed for each subscription."""

REFUSALS: Final = Table(
    "refusals",
    METADATA,
    Column("kind", String(16), primary_key=True),
    # Hours since 1970 in UTC, by the store's clock.
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)
"""The number of refused inputs by hour and kind. Rows are deleted after `REFUSAL_DAYS`."""

RESTORATIONS: Final = Table(
    "restorations",
    METADATA,
    Column("at", BigInteger, primary_key=True, autoincrement=False, default=StoreClock()),
)
"""Restores of the store from a backup.

Calls that ran after the backup have no ticket here. Only the tables' owner adds rows.
"""

COUNTED_ACTS: Final = Table(
    "counted_acts",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("at", BigInteger, nullable=False, default=StoreClock()),
    Index("counted_acts_lately", "kind", "tenant", "at"),
)
"""Acts of tenants with limits, within the limit's period.

`kind` is `start`, `card` or `event`.
"""

CALL_JOINS: Final = Table(
    "call_joins",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("turn", String(64), nullable=False),
    Column("proposed_at", BigInteger, nullable=False, default=StoreClock()),
    Column("given", Text, nullable=True),
    Index("call_joins_age", "proposed_at"),
)
"""Calls that equal proposals join, by a digest of the proposer and the proposal.

A row is deleted before the result is handed out, or once the permit was used. `given` is repeated to every caller that
joins, and does not change.
"""

READINGS: Final = Table(
    "readings",
    METADATA,
    Column("name", String(16), primary_key=True),
    Column("body", Text, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Column("renew_at", BigInteger, nullable=False),
)
"""The last measurement of the backlog, shared by all gateways.

`body` is a `Backlog` as JSON, or empty before the first. One gateway renews it after `renew_at`, and moves that time
ahead while it reads.
"""

PROBES: Final = Table(
    "probes",
    METADATA,
    Column("name", String(16), primary_key=True),
    Column("at", BigInteger, nullable=False, default=StoreClock()),
)
"""One row, rewritten to test whether the store can be written."""


def millis_from_time(moment: datetime) -> int:
    """All time columns hold milliseconds since 1970 in UTC."""
    return round(moment.timestamp() * 1000)


def time_from_millis(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
