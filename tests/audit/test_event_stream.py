import asyncio
import json
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from audit_kit import AT, OTHER, TURN, tamper
from sqlalchemy import Connection, text

from signoff.approvals.audit_events import admin_entry
from signoff.audit import event_stream
from signoff.audit.event_stream import EventStream
from signoff.audit.log import AuditLog, entry_writer
from signoff.audit.record import DATA_BYTES
from signoff.contracts.audit import AuditEntry, AuditKind, CloudEvent, EventEntry
from signoff.formats.replace import replace
from signoff.store.store import Store, open_store

CALL = "main.s1.t1.c1.1"


def entry(key: str, kind: AuditKind = "outcome", stream: str = TURN, **data: Any) -> AuditEntry:
    facts = {"approval": CALL, "call": "c1.1", "tool": "pay", "code": "ok", **data}
    return AuditEntry(stream=stream, key=key, kind=kind, at=AT, tenant="main", subject="anna", data=facts)


def events_of(store: Store) -> EventStream:
    return EventStream(store, lambda tool: tool == "audit_books")


async def read(store: Store, after: int = 0, tenant: str = "main", **wanted: Any) -> Sequence[CloudEvent]:
    events = events_of(store)
    await events.extend()
    return (await events.read(tenant, after, limit=100, **{"with_private": True, **wanted})).events


async def test_events_are_numbered_per_tenant_in_entry_order(store: Store) -> None:
    log = AuditLog(store)
    await log.append([entry("a"), entry("b", "people"), entry("c", code="denied")])
    await log.append([entry("d", stream="turn/acme/s1/t1")])
    await log.append([admin_entry("main", "freeze", "olga", AT, reason="stop"), entry("e", stream=OTHER)])
    found = await read(store)
    assert [(each.number, each.type) for each in found] == [
        (1, "tool_call.executed"),
        (2, "tool_call.failed"),
        (3, "freeze.started"),
        (4, "tool_call.executed"),
    ]
    assert [each.number for each in await read(store, tenant="acme")] == [1]
    assert await events_of(store).extend() == 0
    assert await read(store, after=2) == found[2:]
    assert [each.id for each in await read(store, stream=OTHER)] == [f"{OTHER}/1"]


async def test_entry_without_its_facts_gives_no_event(store: Store) -> None:
    """Otherwise a specialist's call would be shown to all readers, as failed."""
    await AuditLog(store).append([entry("a", tool="audit_books", meta="x" * DATA_BYTES), entry("b")])
    assert [each.id for each in await read(store, with_private=False)] == [f"{TURN}/2"]


async def test_page_of_events_states_where_to_continue(store: Store) -> None:
    """`next` is the last number examined, even if this reader may not see its event."""
    await AuditLog(store).append([entry("a"), entry("b"), entry("c", tool="audit_books")])
    events = events_of(store)
    await events.extend()
    first = await events.read("main", 0, limit=2)
    assert ([each.number for each in first.events], first.next, first.oldest, first.newest) == ([1, 2], 2, 1, 3)
    rest = await events.read("main", first.next, limit=2)
    assert (rest.events, rest.next) == ((), 3)


@pytest.mark.postgres
async def test_late_commit_is_not_skipped(postgres_url: str) -> None:
    # A transaction that began first and commits last gets the higher number, and an advanced reader still finds
    # it. Numbers from a sequence would be taken at the write, and the reader would have passed them.
    async with open_store(postgres_url) as store, open_store(postgres_url) as late:
        # Its stream already has an entry to number: otherwise its locked head would not be read.
        await AuditLog(store).append([entry("first")])
        written = asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(connection: Connection) -> None:
            entry_writer([entry("late")])(connection)
            loop.call_soon(written.set)
            # Inside the transaction, which holds the head of its stream.
            connection.exec_driver_sql("SELECT pg_advisory_lock(42)")
            connection.exec_driver_sql("SELECT pg_advisory_unlock(42)")

        holder = await asyncpg.connect(postgres_url)
        await holder.execute("SELECT pg_advisory_lock(42)")
        writing = asyncio.create_task(late.run(slow))
        await written.wait()
        await AuditLog(store).append([entry("early", stream=OTHER)])
        # Not waited for, either: with the stream's lock awaited this would not return before the holder lets go.
        seen = await read(store)
        assert [each.id for each in seen] == [f"{OTHER}/1"]
        await holder.close()
        await writing
        found = await read(store, after=seen[-1].number)
        assert [(each.id, each.number) for each in found] == [(f"{TURN}/1", 2), (f"{TURN}/2", 3)]


async def test_concurrent_numbering_and_writing_leaves_no_gap(store: Store) -> None:
    streams = [f"turn/main/s1/w{number}" for number in range(4)]
    followed: list[int] = []
    done = asyncio.Event()

    async def write(stream: str) -> None:
        for number in range(10):
            await AuditLog(store).append([entry(f"k{number}", stream=stream)])

    async def follow() -> None:
        after = 0
        while not done.is_set() or await events_of(store).extend():
            for each in await read(store, after=after):
                followed.append(each.number)
                after = each.number
            await asyncio.sleep(0)

    following = [asyncio.create_task(follow()), asyncio.create_task(follow())]
    await asyncio.gather(*(write(stream) for stream in streams))
    done.set()
    await asyncio.gather(*following)
    await read(store)
    assert [each.number for each in await read(store)] == list(range(1, 41))
    assert sorted(set(followed)) == list(range(1, max(followed) + 1))
    assert len({each.id for each in await read(store)}) == 40


async def test_long_stream_is_numbered_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "RECORDS_AT_ONCE", 3)
    monkeypatch.setattr(event_stream, "_RECORDS", event_stream._RECORDS.limit(3))
    for stream in (TURN, OTHER):
        await AuditLog(store).append([entry(f"k{number}", stream=stream) for number in range(4)])
    found = await read(store)
    assert [each.number for each in found] == list(range(1, 9))
    for stream in (TURN, OTHER):
        assert [each.id for each in found if each.id.startswith(stream)] == [f"{stream}/{n}" for n in range(1, 5)]


async def test_specialist_events_are_shown_only_to_readers_of_all(store: Store) -> None:
    other, unknown = "main.s1.t1.c2.1", "main.s1.t1.c3.1"
    log = AuditLog(store)
    asked = entry("b", "request", approval=other, call="c2.1", tool="audit_books")
    await log.append([entry("a", "request"), asked])
    for approval in (CALL, other, unknown):
        fields = {"approval": approval, "verdict": "approved", "status": "accepted"}
        await log.append([AuditEntry(stream=TURN, key=approval, kind="attempt", at=AT, data=fields)])
    seen = await read(store, with_private=False)
    assert [(each.type, each.subject) for each in seen] == [("approval.requested", CALL), ("approval.decided", CALL)]
    everything = await read(store)
    assert len(everything) == 5
    assert {each.subject for each in everything if each.private} == {other, unknown}
    # A decision numbered together with its request is as private as the request.
    both = [entry("c", "request", OTHER, approval="main.s1.t2.c1.1"), entry("d", "attempt", OTHER)]
    fields = {"approval": "main.s1.t2.c1.1", "verdict": "approved", "status": "counted"}
    await log.append([both[0], replace(both[1], data=fields)])
    assert [each.type for each in await read(store, stream=OTHER, with_private=False)] == [
        "approval.requested",
        "approval.answered",
    ]


HOSTILE = {
    "deep": {"arguments": json.loads('{"a":' * 200 + "1" + "}" * 200)},
    "half": {"approvers": ["\ud800"]},
    "shape": {"event": ["tool_call:pay"], "approval": {"a": 1}, "by": []},
}


async def test_malformed_entry_does_not_block_others(store: Store, store_url: str) -> None:
    log = AuditLog(store)
    for _number, (name, data) in enumerate(HOSTILE.items()):
        await log.append([entry(name, "execution" if name == "shape" else "request", **data)])
    long = f"turn/{'t' * 150}/s/t"
    await log.append(
        [entry("long", stream=long), entry("nowhere", stream="somewhere"), entry("changed"), entry("good")]
    )
    await tamper(store_url, "UPDATE audit_records SET data = '[' WHERE key = 'changed'")
    found = await read(store)
    assert found[-1].id.startswith(TURN)
    assert [each.number for each in found] == list(range(1, len(found) + 1))
    assert await events_of(store).extend() == 0
    # An event altered after its numbering is omitted, and the rest remains.
    await tamper(store_url, f"UPDATE events SET body = '{{' WHERE number = {found[0].number}")
    assert await read(store) == found[1:]


async def test_old_events_are_removed_and_the_oldest_number_is_reported(store: Store, store_url: str) -> None:
    log, events = AuditLog(store), events_of(store)
    await log.append([entry("a"), entry("b")])
    await events.extend()
    await tamper(store_url, "UPDATE events SET numbered_at = numbered_at - 864000000 WHERE number = 1")
    assert await events.remove_old(11) == 0
    assert await events.remove_old(9) == 1
    left = await events.read("main", 0, limit=10)
    assert ([each.number for each in left.events], left.oldest) == ([2], 2)
    await tamper(store_url, "UPDATE events SET numbered_at = 0")
    assert await events.remove_old(30) == 1
    left = await events.read("main", 0, limit=10)
    assert (left.events, left.oldest, left.newest, left.next) == ((), 3, 2, 2)
    await log.append([entry("c")])
    assert [each.number for each in await read(store)] == [3]


async def test_actor_of_a_call_comes_from_its_first_trusted_entry(store: Store) -> None:
    at: dict[str, Any] = {"code": "", "actor": ""}
    await AuditLog(store).append(
        [
            entry("a", "outcome", **at, tool="audit_books", by="turn"),
            entry("b", "proposal", **at | {"actor": "books"}, tool="audit_books"),
            entry("c", "attempt", tool="audit_books", verdict="approved", status="accepted"),
            entry("d", "outcome", **at | {"actor": "desk"}, tool="audit_books", by="turn"),
        ]
    )
    assert [each.actor for each in await read(store)] == ["", "books", "books", "books"]
    await AuditLog(store).append([entry("e", "ending", state="cancelled", tool="audit_books", by="turn")])
    assert [each.actor for each in await read(store, after=4)] == ["books"]
    assert {each.private for each in await read(store)} == {True}


async def test_event_only_facts_are_not_in_the_log(store: Store) -> None:
    plain = entry("a", "execution", source="actor:desk", event="tool_call:pay")
    result = EventEntry(**dict(plain), event_facts={"arguments": {"amount": 20}})
    log = AuditLog(store)
    assert [await log.append([result]), await log.append([replace(result, event_facts={"arguments": {}})])]
    assert "20" not in (await log.stream(TURN))[0].data
    left = text("SELECT count(*) FROM event_facts")
    assert await store.run(lambda connection: connection.scalar(left)) == 1
    assert [each.data["arguments"] for each in await read(store)] == [{"amount": 20}]
    assert await store.run(lambda connection: connection.scalar(left)) == 0
