"""Declares the tables of the store, and its clock.

A change here needs a step in store/migrations/ (its docstring says how).
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

METADATA: Final = MetaData()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST: Final = text("revision = 1")
_GROWN: Final = text("seq > numbered")
_OPEN: Final = text("ended_at IS NULL")
_UNSETTLED: Final = text("ended_at IS NULL AND settled_at IS NULL")


class StoreClock(FunctionElement[int]):
    """The SQL function for the present time by the database's own clock, in milliseconds since 1970 in UTC."""

    type = BigInteger()
    inherit_cache = True


@compiles(StoreClock, "sqlite")
def _sqlite_clock(element: StoreClock, compiler: Any, **options: Any) -> str:
    # `julianday` is a double, which may lie just below a whole millisecond: CAST alone would cut that off.
    return "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


@compiles(StoreClock, "postgresql")
def _postgresql_clock(element: StoreClock, compiler: Any, **options: Any) -> str:
    # Not `now()`, the time at which the transaction began: it may have waited for a lock since.
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


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
"""Whose turns may name which blob, by histories that the store cannot see; without a session it is the store's own and
kept for good. `kept_at` is when it was last kept for them."""

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
"""One row a side effect; `nonce` is that of the principal of its turn, by which two turns of one id differ.
`seen_at` is when whoever runs it was last heard of.
`state` is `claimed`, `done` or `void`, `outcome` a `CallOutcome` as JSON, `late_report` a `LateReport`. A late report
changes neither of them."""

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
    Column("ended_at", BigInteger, nullable=True),
    Column("ended_as", String(16), nullable=True),
    Column("readers", Text, nullable=True),
    Column("settled_at", BigInteger, nullable=True),
    # A code means one approval of a tenant, as long as its row is kept; later revisions have the code of the first.
    Index("questions_codes", "tenant", "code", unique=True, sqlite_where=_FIRST, postgresql_where=_FIRST),
    # In the order of lists, so that of many only those are read that are shown.
    Index("questions_waiting", "tenant", "last_at", "approval", sqlite_where=_OPEN, postgresql_where=_OPEN),
    # What waits is counted by it, and it holds nothing else.
    Index("questions_unsettled", "tenant", "last_at", "approval", sqlite_where=_UNSETTLED, postgresql_where=_UNSETTLED),
    Index("questions_turns", "tenant", "session", "turn"),
    Index("questions_opened", "opened_at", "approval"),
    Index("questions_ended", "ended_at"),
)
"""What people were asked. `body` is a `Question` as JSON; `last_at` is when its deadline passes at the latest.
`readers` repeats of it whom it may ever concern, as approver entries, one a line: lists leave out by it what somebody
cannot read, without reading that. Nobody may read a question because of it.
Rows are inserted and never changed, but for the ending, which is set once, and `settled_at`: when an answer settled it
or it was asked anew. What waits is counted by that; nobody is asked, told or let by it."""

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
    Index("answers_owed", "handed_at", "answered_at"),
    Index("answers_taken", "answered_at"),
)
"""What people answered, in the order in which it was taken. `body` is a `Vote` as JSON, with the signed decision;
`settles`: the request waits for no further answer. `arrived_at`: when it arrived by a channel, else when it was stored.
`handed_at`: when its turn was given it. `voided_at`: since when it counts for nothing: an approval that its turn
did not take, an undone denial, or the undo itself. What it settled waits again."""

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
"""Unsigned answers that came by a Signal or an Update of Temporal's own. `body` is a `Decision` as JSON."""

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
"""The receipt of each raw answer. `body` is a `Receipt` as JSON, `delivery` that of the row in `answers`, if any."""

KEYS: Final = Table(
    "keys",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("secret", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Secrets made by the store itself."""

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
"""Personal API tokens; `digest` is the sha-256 of the secret, `id` its first characters."""

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
"""Browsers whose people signed in; `digest` is the sha-256 of the cookie, `token` the id of a pasted token or empty."""

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
"""People whom nobody declared, as their last sign-in said: `body` is a `VouchedPerson` as JSON, signed by the
gateway.
"""

FREEZES: Final = Table(
    "freezes",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("frozen_by", String(64), nullable=False),
    Column("frozen_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Tenants whose tools do not run."""

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
"""Remembered answers. `exact` is a digest of arguments, `predicate` a CEL expression over them; one of both is empty.
`people` are ids with a space between them, `requester` is who asked. How often one may still answer is `uses` less its
rows in `grant_uses`: whoever spends a use changes nothing here."""

GRANT_USES: Final = Table(
    "grant_uses",
    METADATA,
    Column("grant_id", String(64), primary_key=True),
    Column("key", String(80), primary_key=True),
    Column("used_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Which tickets were claimed by which grant; of a denial, which calls it denied."""

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
"""One row a use of a tool whose number is limited, under its ticket's key; `returned_at` where the call failed.
`tool` is the tool's activity."""

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
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
    Column("sent_at", BigInteger, nullable=True),
    Column("changed_at", BigInteger, nullable=False, default=StoreClock()),
    Column("ended_at", BigInteger, nullable=True),
    Column("closed_at", BigInteger, nullable=True),
    Column("request", Text, nullable=False),
    Column("remind_at", BigInteger, nullable=True),
    Column("tried_at", BigInteger, nullable=True),
    # Tokens are made of these four: should that ever change, planning fails, and nobody gets a second card.
    Index("deliveries_cards", "approval", "revision", "person", "channel", unique=True),
    Index("deliveries_by_vendor", "channel", "vendor_id"),
    Index("deliveries_by_address", "channel", "address", "state"),
    Index("deliveries_due", "state", "due_at"),
)
"""One row a card: what one person is shown of one request on one channel. `handle` is JSON of the channel's own;
`request` an `ApprovalRequest` as JSON, as it ended from `ended_at` on. `tried_at` is when the first try to send the
card began."""

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
    Column("attempts", Integer, nullable=False),
    Column("state", String(8), nullable=False),
    Column("result", Text, nullable=True),
    Column("speaker", String(64), nullable=False),
    Index("arrivals_due", "state", "due_at"),
    Index("arrivals_by_speaker", "speaker", "received_at"),
)
"""What came in by channels, kept before anything is made of it; `state` is `new`, `done` or `dropped`."""

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
"""Blocks below people's sign-offs that could have been part of an answer: `digest` is a block's sha-256, `code` that of
the request which was answered with it, `known_at` when they said that it means nothing."""

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
"""The messages that channels sent beside cards, by the vendor's id. `content` is JSON: the requests that a message is
about, and its words."""

COMPLETIONS: Final = Table(
    "completions",
    METADATA,
    Column("key", String(80), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("kept_at", BigInteger, nullable=False, default=StoreClock()),
    Index("completions_age", "kept_at"),
)
"""What a model answered, by the run of its turn and the number of the completion: a `ModelReply` as JSON."""

OPENED_VALUES: Final = Table(
    "opened_values",
    METADATA,
    Column("question_hash", String(64), primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("page", Integer, primary_key=True),
    Column("opened_at", BigInteger, nullable=False, default=StoreClock()),
)
"""Who opened which page of all the values of a question, where its card does not draw them all; the gateway's alone."""

AUDIT_HEADS: Final = Table(
    "audit_heads",
    METADATA,
    Column("stream", String(200), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("covered", BigInteger, nullable=False),
    Column("numbered", BigInteger, nullable=False, server_default=text("0")),
    # Those alone that are in it have grown: whoever looks for them, every few seconds, reads no other.
    Index("audit_heads_grown", "stream", sqlite_where=_GROWN, postgresql_where=_GROWN),
)
"""The last record of each stream, up to which one the checkpoints vouch, and up to which one events were made of them;
a writer locks the row of its stream."""

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
    # Once more what the log makes sure of under its lock: no retry writes the same thing twice.
    Index("audit_records_keys", "stream", "key", unique=True),
)
"""What happened, chained by hash within each stream; rows are only ever added. `at` is ISO 8601 in UTC."""

AUDIT_CHECKPOINTS: Final = Table(
    "audit_checkpoints",
    METADATA,
    # Counted under the lock of the chain: a sequence leaves gaps, and a gap says that one was taken away.
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
    Column("hash", String(64), nullable=False),
    Column("key_id", String(64), nullable=False),
    Column("signature", String(128), nullable=False),
)
"""Signed statements of how far the streams had come, each naming the one before."""

EVENT_HEADS: Final = Table(
    "event_heads",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""The number of each tenant's newest event; that of no tenant is locked by whoever numbers, and is always 0."""

EVENTS: Final = Table(
    "events",
    METADATA,
    Column("tenant", String(64), primary_key=True),
    # Counted under a lock: a sequence gives a number before it is known whether, and when, its row is there.
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
"""What programs outside are told, in the order of its numbers. `body` is a `CloudEvent` as JSON, without its number;
`actor` is whose call it is about, where that is known, `private` where it is of a specialist. Rows go after
`SIGNOFF_EVENT_DAYS`."""

EVENT_FACTS: Final = Table(
    "event_facts",
    METADATA,
    Column("stream", String(200), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("body", Text, nullable=False),
)
"""What an event tells beside its record, by the stream and key of that, until it is numbered; `body` is JSON."""

EVENT_SOURCES: Final = Table(
    "event_sources",
    METADATA,
    Column("name", String(32), primary_key=True),
    Column("moment", BigInteger, nullable=False),
)
"""Up to which moment each thing is followed that the gateway records as it sees it, in ms since 1970."""

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
    Column("created_at", BigInteger, nullable=False, default=StoreClock()),
    Index("event_deliveries_due", "state", "subscription", "tenant", "due_at"),
)
"""One row an event that a subscription is owed; `state` is `new` or `dead`. What was delivered has no row."""

SUBSCRIPTIONS: Final = Table(
    "subscriptions",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("number", BigInteger, nullable=False),
)
"""Up to which event each subscription has been given what it wants."""

REFUSALS: Final = Table(
    "refusals",
    METADATA,
    Column("kind", String(16), primary_key=True),
    # Hours since 1970 in UTC, by the store's clock.
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
)
"""How much bad input was refused in an hour, of each kind; rows go after `REFUSAL_DAYS`."""

RESTORATIONS: Final = Table(
    "restorations",
    METADATA,
    Column("at", BigInteger, primary_key=True, autoincrement=False, default=StoreClock()),
)
"""When the store was restored from a backup: what ran after that was taken has no ticket here. Its owner adds rows."""

COUNTED_ACTS: Final = Table(
    "counted_acts",
    METADATA,
    Column("key", String(300), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("at", BigInteger, nullable=False, default=StoreClock()),
    Index("counted_acts_lately", "kind", "tenant", "at"),
)
"""What tenants with limits did within the time of the limit: `kind` is `start`, `card` or `event`."""

CALL_JOINS: Final = Table(
    "call_joins",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("turn", String(64), nullable=False),
    Column("proposed_at", BigInteger, nullable=False, default=StoreClock()),
    Column("given", Text, nullable=True),
    Index("call_joins_age", "proposed_at"),
)
"""By a digest of who proposes what, the turn of the call that equal proposals join; its row goes before its result is
handed out, or once its permit was used. `given` is what a caller is told again with it, and stays."""

PROBES: Final = Table(
    "probes",
    METADATA,
    Column("name", String(16), primary_key=True),
    Column("at", BigInteger, nullable=False, default=StoreClock()),
)
"""One row, written anew to see whether the store can be written."""


def millis_from_time(moment: datetime) -> int:
    """Converts a time to the form of every column of times: milliseconds since 1970 in UTC."""
    return round(moment.timestamp() * 1000)


def time_from_millis(milliseconds: int) -> datetime:
    """Converts milliseconds of the store's clock to a time in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
