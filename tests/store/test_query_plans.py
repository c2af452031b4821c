"""Plans of the store's lists, counts and lookups, over enough rows that a scan is a fault.

They were compared once with those at a million questions: see `docs/internal/benchmarks.md`.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest
from sqlalchemy import ColumnElement, Connection, String, Table, cast, event, literal, null, select
from sqlalchemy.types import BigInteger, Boolean, Integer, LargeBinary

from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.event_stream import EventStream
from signoff.audit.log import AuditLog
from signoff.contracts.approval import RequestMessage, Vote
from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.decision import Decision
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.store import old_turns
from signoff.store.call_joins import CallJoins
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.gauges.backlog_reader import BacklogReader
from signoff.store.grants import Grants
from signoff.store.history import past_requests
from signoff.store.history.past_counts import count_past, count_slices
from signoff.store.history.past_requests import (
    PastSearch,
    find_seen,
    hold_due,
    list_due,
    remove_past,
    remove_past_of,
    search_past,
)
from signoff.store.inbound_queue import InboundQueue
from signoff.store.messages.notices import Notices
from signoff.store.questions.answers import Answers
from signoff.store.questions.questions import OpenPlace, Questions, end_turn_questions
from signoff.store.questions.request_lists import RequestLists
from signoff.store.questions.request_messages import RequestMessages
from signoff.store.questions.turn_stamps import TurnStamps
from signoff.store.questions.turn_waits import TurnWaits
from signoff.store.store import Store
from signoff.store.tables import (
    ANSWERS,
    ARRIVALS,
    AUDIT_RECORDS,
    BLOB_SESSIONS,
    CALL_JOINS,
    DELIVERIES,
    EVENT_DELIVERIES,
    EVENTS,
    GRANTS,
    PAST_REQUESTS,
    QUESTION_READERS,
    QUESTIONS,
    REQUEST_MESSAGES,
    TICKETS,
    UNINDEXED_REQUESTS,
    USES,
    millis_from_time,
    time_from_millis,
)
from signoff.testing.builders import a_question
from tools.bench.scale.synthetic import EVERYONE, FEW, analyze, fill_questions, name_of, numbered

ROWS: Final = 10_000
READ: Final = 1_500
"""Rows that one statement may read: a few pages, and far fewer than there are."""
SOME: Final = 100
AGO: Final = 1_700_000_000_000
"""A time of the synthetic rows, in ms, long before now."""
TURN: Final = TurnKey("main", "s77", "t77")
NAME: Final = name_of(77)
VOTE: Final = Vote(
    subject="bo",
    verdict="approved",
    at=time_from_millis(AGO),
    decision=Decision(approval_id=NAME, revision=1, verdict="approved", subject="bo"),
).model_dump_json()
MESSAGE: Final = RequestMessage(number=1, by="approver", text="Why?", revision=1).model_dump_json()
Number = ColumnElement[int]
Values = Callable[[Number], dict[str, Any]]


def text_of(prefix: str, number: Number) -> Any:
    return literal(prefix) + cast(number, String)


def spread_over(row: Number, **every: Any) -> dict[str, Any]:
    """Times differ from row to row."""
    return {name: literal(value, BigInteger) + row for name, value in every.items()}


FILLED: Final[Mapping[Table, Values]] = {
    ANSWERS: lambda n: {
        "approval": text_of("main.s.t.x", n), "number": literal(1), "revision": literal(1),
        "delivery": text_of("d", n), "body": literal(VOTE), **spread_over(n, answered_at=AGO, handed_at=AGO),
    },
    TICKETS: lambda n: {
        "key": text_of("k", n), "workflow": text_of("turn/main/s/t", n), "call": literal("c1.1"),
        "state": literal("done"), **spread_over(n, claimed_at=AGO),
    },
    USES: lambda n: {"key": text_of("k", n), "tenant": literal("main"), "tool": literal("pay"),
        **spread_over(n, used_at=AGO)},
    GRANTS: lambda n: {"id": text_of("g", n), "tenant": literal("main"), "tool": text_of("tool", n % SOME),
        "approval_id": text_of("main.s.t.x", n), **spread_over(n, created_at=AGO, expires_at=AGO)},
    DELIVERIES: lambda n: {
        "token": text_of("t", n), "tenant": literal("main"), "approval": text_of("main.s.t.x", n),
        "revision": literal(1), "person": literal("ana"), "channel": literal("mail"), "address": text_of("a", n),
        "state": literal("closed"), "vendor_id": text_of("v", n), "request": literal("{}"), "handle": literal("{}"),
        **spread_over(n, due_at=AGO, created_at=AGO, changed_at=AGO, ended_at=AGO, closed_at=AGO),
    },
    ARRIVALS: lambda n: {"key": text_of("k", n), "channel": literal("mail"), "kind": literal("act"),
        "state": literal("done"), "speaker": text_of("p", n % SOME), **spread_over(n, received_at=AGO, due_at=AGO)},
    EVENT_DELIVERIES: lambda n: {"key": text_of("k", n), "subscription": text_of("s", n % SOME),
        "tenant": literal("main"), "state": literal("new"), **spread_over(n, number=0, due_at=AGO, created_at=AGO)},
    EVENTS: lambda n: {"tenant": literal("main"), "stream": text_of("turn/main/s/t", n), "body": literal("{}"),
        **spread_over(n, number=0, numbered_at=AGO)},
    AUDIT_RECORDS: lambda n: {"stream": text_of("turn/main/s/t", n), "seq": literal(1), "key": text_of("k", n),
        **spread_over(n, written_at=AGO)},
    BLOB_SESSIONS: lambda n: {"sha256": text_of("h", n), "tenant": literal("main"), "session": text_of("s", n),
        **spread_over(n, kept_at=AGO)},
    REQUEST_MESSAGES: lambda n: {"approval": text_of("main.s.t.x", n), "number": literal(1),
        "author": literal("approver"), "body": literal(MESSAGE), **spread_over(n, written_at=AGO)},
    CALL_JOINS: lambda n: {"key": text_of("k", n), "turn": text_of("t", n), **spread_over(n, proposed_at=AGO)},
    PAST_REQUESTS: lambda n: {"approval": text_of("main.s.t.x", n), "stream": text_of("turn/main/s/t", n),
        "body": literal("{}"), "words": cast(text_of("every w", n), PAST_REQUESTS.c.words.type),
        **spread_over(n, number=AGO)},
}  # fmt: skip
PARTIAL: Final = "USING INDEX deliveries_unfinished"
"""An index of the wanted rows alone, in the order of their list."""
BIG: Final = frozenset(table.name for table in (*FILLED, QUESTIONS, QUESTION_READERS, UNINDEXED_REQUESTS))


def complete(table: Table, values: Values, number: Number) -> dict[str, Any]:
    """Give the other columns an empty value."""
    empty = {Integer: 0, BigInteger: 0, Boolean: False, LargeBinary: b""}
    others = {
        column.name: null() if column.nullable else literal(empty.get(type(column.type), ""), column.type)
        for column in table.columns
        if column.computed is None
    }
    return others | values(number)


async def fill(store: Store) -> None:
    await fill_questions(store, ROWS)
    for table, values in FILLED.items():
        rows = numbered(table, 1, ROWS, partial(complete, table, values))
        await store.run(lambda connection, rows=rows: connection.execute(rows).close())
    await analyze(store)


def on_turn(work: Callable[..., Any], **values: Any) -> Callable[[Store], Awaitable[Any]]:
    return lambda store: store.run(lambda connection: work(connection, **values))


async def first_piece(store: Store, *readers: str) -> None:
    pieces = RequestLists(store).iterate_waiting("main", readers=readers or None)
    async for _ in pieces:
        async for _ in pieces:
            break
        break
    await pieces.aclose()


def wanted_of(*words: str) -> PastSearch:
    return PastSearch(tuple(frozenset((each,)) for each in words))


def search(*words: str) -> Callable[[Store], Awaitable[Any]]:
    wanted = wanted_of(*words)
    return lambda store: store.read(partial(search_past, wanted=wanted, before=None, limit=SOME))


async def page_after_all(store: Store) -> None:
    await Questions(store).list_overdue(OpenPlace(millis_from_time(datetime.now(UTC)) - 1000, ""), SOME)


async def ask(store: Store) -> None:
    asked = a_question(id="main.new.t.c1.1", session="new", definition="x")
    await Questions(store).ask(asked, canonical_json({}), waiting=2 * ROWS)


READS: Final[Mapping[str, Callable[[Store], Awaitable[Any]]]] = {
    "list of all": first_piece,
    "list of nobody": lambda store: first_piece(store, "user:nobody", "role:nobody"),
    "list of few": lambda store: first_piece(store, "user:ana", FEW),
    "list of nearly all": lambda store: first_piece(store, "user:ana", EVERYONE, FEW),
    "waiting of sessions": lambda store: RequestLists(store).list_waiting_of("main", ["s77", "s78"]),
    "requests of turns": lambda store: RequestLists(store).of_turns([TURN, TURN._replace(turn="t78")]),
    "requests of turns for readers": lambda store: RequestLists(store).of_turns([TURN], readers=(FEW, "user:ana")),
    "requests of a turn": lambda store: RequestLists(store).of_turn(TURN),
    "stamps of turns": lambda store: TurnStamps(store).read([TURN, TURN._replace(turn="t78")]),
    "waits of a turn": lambda store: TurnWaits(store).read(TURN),
    "a request": lambda store: Questions(store).read(NAME),
    "a code": lambda store: Questions(store).find_by_code("main", "77"),
    "changed requests": lambda store: Questions(store).list_changed(time_from_millis(4 * AGO)),
    "overdue requests": page_after_all,
    "unanswered requests": lambda store: Questions(store).list_unanswered(-100.0, SOME, None),
    "messages of a request": lambda store: RequestMessages(store).read(NAME),
    "questions without an answer": lambda store: RequestMessages(store).list_unanswered(30.0, SOME),
    "end of a turn's requests": on_turn(end_turn_questions, turn=TURN),
    "owed answers": lambda store: Answers(store).list_owed(5.0, SOME),
    "an owed answer": lambda store: Answers(store).find_owed(NAME, "d77"),
    "answers to owe a turn": lambda store: Answers(store).owe_turn(TURN, 5.0),
    "hand-over of an answer": lambda store: Answers(store).hand_over(NAME, "d77"),
    "tickets of a turn": lambda store: store.tickets_of_turn("turn/main/s/t77"),
    "a ticket": lambda store: store.read_ticket("k77"),
    "claim of a ticket": lambda store: store.claim("new", workflow="turn/main/s/t77", call="c9", tool="pay", nonce="n"),
    "grants of a tool": lambda store: Grants(store).list_usable("main", "s77", "tool7"),
    "state of a tool's grants": lambda store: Grants(store).state_of("main", "tool7"),
    "cards of a request": lambda store: DeliveryQueue(store).of_request(NAME),
    "card by token": lambda store: DeliveryQueue(store).by_token("t77"),
    "card by vendor": lambda store: DeliveryQueue(store).by_vendor("mail", ["v77"]),
    "unfinished cards": lambda store: DeliveryQueue(store).list_unfinished(SOME),
    "notices of a request": lambda store: Notices(store).of_request(NAME),
    "finished calls with notices": lambda store: Notices(store).list_finished(),
    "notices without channels": lambda store: Notices(store).list_unrouted(),
    "old open notices": lambda store: Notices(store).drop_old(),
    "an arrival": lambda store: InboundQueue(store).read("mail", "act", "k77"),
    "a joined call": lambda store: CallJoins(store).find("k77"),
    "given up events": lambda store: EventDeliveries(store).list_given_up("main"),
    "events": lambda store: EventStream(store, lambda tool: False).read("main", ROWS - SOME, limit=SOME),
    "events of a turn": lambda store: EventStream(store, lambda tool: False).read(
        "main", 0, limit=SOME, stream="turn/main/s/t77"
    ),
    "record of a turn": lambda store: AuditLog(store).stream("turn/main/s/t77"),
    "entry of turns": lambda store: AuditLog(store).find("k77", ["turn/main/s/t77", "turn/main/s/t78"]),
    "entries of a kind": lambda store: AuditLog(store).of_kinds(["verdict"], ["turn/main/s/t77"]),
    "search of a rare word": search("every", "w77"),
    "search of a word of none": search("every", "none"),
    "a seen value": lambda store: store.read(partial(find_seen, wanted=wanted_of("every"), words={"w77"})),
    "a new value": lambda store: store.read(partial(find_seen, wanted=wanted_of("every"), words={"none", "no"})),
    "figures": lambda store: store.read(partial(count_past, wanted=wanted_of("every", "w77"), persons=(), limit=SOME)),
    "numbers by day": lambda store: store.read(partial(count_slices, wanted=wanted_of("every", "w77"), limit=SOME)),
    "removal of a past request": on_turn(remove_past, approval=NAME),
    "removal of a turn's past requests": on_turn(remove_past_of, turn=TURN),
    "unindexed requests": on_turn(list_due, limit=SOME),
    "unindexed request": on_turn(hold_due, approval=NAME),
    "old turns by question": on_turn(old_turns.old_turns, table=QUESTIONS, before=4 * AGO, after=None),
    "old turns by ticket": on_turn(old_turns.old_turns, table=TICKETS, before=4 * AGO, after=(AGO, "")),
    "newest turns": on_turn(old_turns.newest_turns, limit=SOME),
    "age of a turn": on_turn(old_turns.is_old, turn=TURN, before=4 * AGO),
    "rows of a turn": on_turn(old_turns.count_turn, turn=TURN),
    "old sessions": on_turn(old_turns.old_sessions, before=4 * AGO, after=None),
    "old blobs": on_turn(old_turns.old_blobs, session=SessionKey("main", "s77"), before=4 * AGO, after=""),
    "questions of a session": on_turn(old_turns.has_questions, session=SessionKey("main", "s77")),
    "sweep of calls": lambda store: CallJoins(store).sweep(timedelta(days=36_500)),
}
COUNTS: Final[Mapping[str, Callable[[Store], Awaitable[Any]]]] = {
    "gauges": lambda store: BacklogReader(store).read(),
    "limit of waiting requests": ask,
}
"""They read each entry of an index, but no row."""


@contextmanager
def noted(store: Store, engines: list[Any]) -> Iterator[list[tuple[str, Any]]]:
    statements: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if not many and re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT[^;]*\bSELECT\b)", statement):
            statements.append((statement, parameters))

    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    yield statements
    for engine in engines:
        event.remove(engine, "before_cursor_execute", note)


def scans(connection: Connection, statement: str, parameters: Any, *, entries: bool) -> list[str]:
    """Return the faults of a statement's plan. `entries` permits it to read every entry of an index."""
    if connection.dialect.name == "sqlite":
        plan = [line[-1] for line in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
        reading = [line for line in plan if (scan := re.match(r"SCAN (\w+?)(_\d+)?\b", line)) and scan[1] in BIG]
        if entries:
            seeks = [line for line in plan if line.startswith("SEARCH questions USING INDEX questions_unsettled")]
            return [line for line in (*reading, *seeks) if "COVERING INDEX" not in line]
        # Without a condition and in the order of an index, a limit ends the scan.
        in_order = len(plan) == 1 and "LIMIT" in statement and ("WHERE" not in statement or PARTIAL in plan[0])
        return [] if in_order else reading
    savepoint = connection.begin_nested()
    # With so few rows, reading all may cost less. With a million it does not, so it counts only if nothing else helps.
    for kind in ("seqscan", "hashjoin", "mergejoin"):
        connection.exec_driver_sql(f"SET LOCAL enable_{kind} = off")
    rows = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
    savepoint.rollback()
    nodes = list(_nodes((json.loads(rows) if isinstance(rows, str) else rows)[0]["Plan"]))
    found = [f"{node['Node Type']} on {node['Relation Name']}" for node in nodes if _is_seq_scan(node)]
    if entries:
        return found
    return found + [f"{_read(node)} rows read: {node['Node Type']}" for node in nodes if _read(node) > READ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from _nodes(each)


def _is_seq_scan(node: dict[str, Any]) -> bool:
    return node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG


def _read(node: dict[str, Any]) -> float:
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(each * node["Actual Loops"])


async def find_faults(
    store: Store, reads: Mapping[str, Callable[[Store], Awaitable[Any]]], *, entries: bool
) -> dict[str, list[str]]:
    engines = [await run(lambda connection: connection.engine) for run in (store.run, store.read)]
    faults: dict[str, list[str]] = {}
    for name, read in reads.items():
        with noted(store, list(dict.fromkeys(engines))) as statements:
            await read(store)
        assert statements, name
        for statement, parameters in statements:
            found = await store.run(partial(scans, statement=statement, parameters=parameters, entries=entries))
            if found:
                faults.setdefault(name, []).extend([*found, statement])
    return faults


async def test_lists_counts_and_lookups_scan_no_table(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # A search first reads so many of the newest rows. Otherwise that is half of this small table.
    monkeypatch.setattr(past_requests, "NEWEST", SOME)
    await fill(store)
    assert await find_faults(store, READS, entries=False) == {}
    assert await find_faults(store, COUNTS, entries=True) == {}


async def test_plan_of_a_scan_is_found(store: Store) -> None:
    await fill_questions(store, ROWS)
    by_end = select(QUESTIONS.c.code).where(QUESTIONS.c.ended_as == "lapsed")
    reads = {"a scan": lambda store: store.read(lambda connection: connection.execute(by_end).all())}
    assert list(await find_faults(store, reads, entries=False)) == ["a scan"]
