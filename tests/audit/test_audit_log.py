import asyncio
import subprocess
import sys
from datetime import timedelta, timezone

import pytest
from audit_kit import AT, OTHER, TURN, entry, numbers, verified
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from signoff.audit.log import AuditLog, entry_writer
from signoff.audit.record import FIRST
from signoff.contracts.errors import Refused, StoreUnavailable
from signoff.formats.replace import replace
from signoff.store.store import Store, open_store

_APPENDERS = """
import asyncio, os, sys, traceback
from datetime import UTC, datetime
from signoff.audit.log import AuditLog
from signoff.contracts.audit import AuditEntry
from signoff.store.store import open_store
there_read, there = os.pipe()
begun, begin = os.pipe()
async def append(number):
    async with open_store(sys.argv[1]) as store:
        os.write(there, b"x")
        os.read(begun, 1)
        for n in range(20):
            for stream in ("turn/a/b/c", "admin/a"):
                await AuditLog(store).append([AuditEntry(stream=stream, key=f"{number}/{n}", kind="attempt",
                    at=datetime.now(UTC), tenant="a"), AuditEntry(stream=stream, key=f"shared/{n}", kind="attempt",
                    at=datetime.now(UTC), tenant="a")])
children = []
for number in range(3):
    child = os.fork()
    if child == 0:
        os.close(begin)
        code = 1
        try:
            asyncio.run(append(number))
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    children.append(child)
os.close(there)
for _ in children:
    os.read(there_read, 1)
os.close(begin)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""
"""Three forked processes that start writing together."""


async def test_entries_are_chained_in_writing_order(store: Store) -> None:
    log = AuditLog(store)
    assert await log.append([entry(1), entry(2)]) == 2
    assert await log.append([entry(3)]) == 1
    records = await log.stream(TURN)
    assert numbers(records) == [1, 2, 3]
    assert [record.prev for record in records] == [FIRST, records[0].hash, records[1].hash]
    assert [record.facts["number"] for record in records] == [1, 2, 3]
    assert records[0].at == "2026-03-01T09:30:01.000000+00:00"


async def test_repeated_entry_adds_nothing(store: Store) -> None:
    log = AuditLog(store)
    await log.append([entry(1), entry(2)])
    assert await log.append([entry(2, again=True), entry(3), entry(3, again=True), entry(1)]) == 1
    assert [record.facts for record in await log.stream(TURN)] == [{"number": number} for number in (1, 2, 3)]
    assert await log.append([entry(1, OTHER)]) == 1
    assert await log.append([]) == 0


async def test_concurrent_appends_of_two_stores_keep_one_chain(store: Store, store_url: str) -> None:
    async with open_store(store_url) as second:
        logs = AuditLog(store), AuditLog(second)
        added = await asyncio.gather(
            *(logs[n % 2].append([entry(n // 2, OTHER), entry(n // 2)]) for n in range(100)),
            *(logs[n % 2].append([entry(n // 2), entry(n // 2, OTHER)]) for n in range(100)),
        )
    assert sum(added) == 100
    for stream in (TURN, OTHER):
        records = await logs[0].stream(stream)
        assert numbers(records) == list(range(1, 51))
        assert {record.key for record in records} == {f"k{n}" for n in range(50)}
    assert (await verified(store)).finding is None


async def test_concurrent_processes_keep_one_chain(store: Store, store_url: str) -> None:
    program = [sys.executable, "-c", _APPENDERS, store_url]
    ran = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for stream in ("turn/a/b/c", "admin/a"):
        records = await AuditLog(store).stream(stream)
        assert {record.key for record in records} == {f"{p}/{n}" for p in (0, 1, 2, "shared") for n in range(20)}
        assert numbers(records) == list(range(1, 81))
    assert (await verified(store)).finding is None


async def test_entries_share_the_transaction_of_their_writer(store: Store) -> None:
    def fails(connection: object) -> None:
        entry_writer([entry(1)])(connection)  # type: ignore[arg-type]
        raise Refused("no")

    with pytest.raises(Refused):
        await store.run(fails)
    assert await AuditLog(store).stream(TURN) == []
    assert await store.run(entry_writer([entry(1), entry(2)])) == 2
    assert numbers(await AuditLog(store).stream(TURN)) == [1, 2]


async def test_closed_database_refuses_entries(store: Store) -> None:
    await store.close()
    with pytest.raises(StoreUnavailable):
        await AuditLog(store).append([entry(1)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    text=st.text(st.characters(), max_size=400),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters()), inner, max_size=3),
        max_leaves=8,
    ),
)
async def test_any_text_of_a_sender_is_recorded(store: Store, text: str, value: object) -> None:
    log = AuditLog(store)
    hostile = replace(entry(0), key=text, subject=text, stream=f"turn/{text}", data={"x": value})
    assert await log.append([hostile]) in (0, 1)
    assert await log.append([hostile]) == 0
    assert (await log.stream(hostile.stream))[-1].facts is not None
    assert (await verified(store)).finding is None


async def test_data_above_the_limit_is_recorded_by_hash(store: Store) -> None:
    log = AuditLog(store)
    await log.append([entry(1, text="ü" * 40_000)])
    (record,) = await log.stream(TURN)
    assert set(record.facts) == {"too_long", "sha256"}


async def test_entry_times_are_stored_in_utc(store: Store) -> None:
    log = AuditLog(store)
    tokyo = replace(entry(1), at=AT.astimezone(timezone(timedelta(hours=9))))
    await log.append([tokyo])
    assert (await log.stream(TURN))[0].at == "2026-03-01T09:30:00.000000+00:00"


async def test_pages_return_every_entry_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signoff.audit.log.PAGE", 3)
    log = AuditLog(store)
    for stream in (TURN, OTHER, "admin/main"):
        await log.append(entry(number, stream) for number in range(1, 8))
    found = [(record.stream, record.seq) async for record in log.records()]
    assert sorted(found) == sorted((stream, n) for stream in (TURN, OTHER, "admin/main") for n in range(1, 8))
    assert [seq for _, seq in found] == [*range(1, 8)] * 3
    late = [record async for record in log.records(since="2026-03-01T09:30:06", kinds=["attempt"], tenant="main")]
    assert len(late) == 6
    assert [record async for record in log.records(kinds=["grant"])] == []
    assert [record async for record in log.records(tenant="other")] == []
