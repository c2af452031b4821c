from datetime import UTC, datetime, timedelta

import pytest
from audit_kit import AT, OTHER, SIGNER, TURN, entry, filled, numbers, tamper, verified
from some import some

from signoff.audit.agentack_export import trace
from signoff.audit.checkpoints import Checkpoints
from signoff.audit.export import Export, export_lines, iterate
from signoff.audit.log import AuditLog
from signoff.audit.retention import RETIRED, RetiredStream, retire
from signoff.audit.timeline import timeline
from signoff.audit.verifier import verify, verify_stream
from signoff.contracts.errors import Refused
from signoff.contracts.ids import TurnKey
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.store.store import Store

LATER = datetime(2100, 1, 1, tzinfo=UTC)
"""Later than all writes of a test: entries have the store's time."""
NOW = AT + timedelta(days=400)
IN_TURN = f"stream = '{TURN}'"


async def ended(turn: TurnKey) -> bool:
    return turn.workflow_id != OTHER


async def retired(store: Store, before: datetime = LATER, signer: Signer = SIGNER) -> list[RetiredStream]:
    return await retire(store, signer, before, at=NOW, is_over=ended)


@pytest.fixture
async def thinned(store: Store) -> Store:
    await filled(store, TURN, OTHER, "admin/main")
    assert await Checkpoints(store).take(SIGNER) is not None
    assert await retired(store) == [RetiredStream(TurnKey("main", "s1", "t1"), 5)]
    assert await Checkpoints(store).take(SIGNER) is not None
    return store


async def test_retired_turn_leaves_one_entry_that_verifies(thinned: Store) -> None:
    log = AuditLog(thinned)
    (left,) = await log.stream(TURN)
    assert (left.seq, left.kind, left.facts["records"]) == (6, RETIRED, 5)
    assert numbers(await log.stream(OTHER)) == numbers(await log.stream("admin/main")) == [1, 2, 3, 4, 5]
    report = await verified(thinned)
    assert (report.finding, report.streams, report.records, report.uncovered) == (None, 3, 11, 0)
    assert TURN in await log.streams()
    assert timeline([left])[0].what == f"5 records were retired, signed by key {SIGNER.key_id}"


async def test_repeated_retirement_changes_nothing(thinned: Store) -> None:
    before = await AuditLog(thinned).stream(TURN)
    assert await retired(thinned) == []
    assert await AuditLog(thinned).stream(TURN) == before


async def test_newer_turns_are_not_retired(store: Store) -> None:
    await filled(store, TURN)
    assert await retired(store, before=datetime(2026, 1, 1, tzinfo=UTC)) == []
    assert numbers(await AuditLog(store).stream(TURN)) == [1, 2, 3, 4, 5]


async def test_retired_stream_may_continue_and_be_retired_again(thinned: Store) -> None:
    log = AuditLog(thinned)
    await log.append([entry(6)])
    assert numbers(await log.stream(TURN)) == [6, 7]
    report = await verified(thinned)
    assert (report.finding, report.uncovered) == (None, 1)
    assert await retired(thinned) == [RetiredStream(TurnKey("main", "s1", "t1"), 2)]
    assert numbers(await log.stream(TURN)) == [8]
    assert (await verified(thinned)).finding is None


@pytest.mark.parametrize(
    ("change", "fault", "seq"),
    [
        (f"DELETE FROM audit_records WHERE {IN_TURN}", "truncated", 1),
        (
            f"UPDATE audit_records SET data = replace(data, '\"records\":5', '\"records\":4') WHERE {IN_TURN}",
            "changed",
            6,
        ),
        (f"UPDATE audit_records SET kind = 'attempt' WHERE {IN_TURN}", "missing", 1),
        (f"UPDATE audit_records SET seq = 4 WHERE {IN_TURN}", "unsigned", 4),
    ],
)
async def test_altered_retirement_entry_is_found(
    thinned: Store, store_url: str, change: str, fault: str, seq: int
) -> None:
    await tamper(store_url, change)
    finding = some((await verified(thinned)).finding)
    assert (finding.fault, finding.stream, finding.seq) == (fault, TURN, seq)


async def test_retirement_without_the_key_is_found(store: Store) -> None:
    await filled(store, TURN)
    await Checkpoints(store).take(SIGNER)
    forger = Signer(PrivateKeys(keys=(new_key(AT),)))
    assert await retired(store, signer=forger) == [RetiredStream(TurnKey("main", "s1", "t1"), 5)]
    await Checkpoints(store).take(SIGNER)
    finding = some((await verified(store)).finding)
    assert (finding.fault, finding.seq) == ("unsigned", 6)
    records = await AuditLog(store).stream(TURN)
    assert verify_stream(records, None, forger.verifier()) is None
    assert verify_stream(records, None, Verifier()) is not None


async def test_retirement_of_an_altered_past_is_found(store: Store, store_url: str) -> None:
    await filled(store, TURN)
    await Checkpoints(store).take(SIGNER)
    await tamper(
        store_url,
        f"UPDATE audit_records SET hash = '{'0' * 64}' WHERE {IN_TURN} AND seq = 5",
        f"UPDATE audit_heads SET hash = '{'0' * 64}' WHERE {IN_TURN}",
    )
    await retired(store)
    finding = some((await verified(store)).finding)
    assert (finding.fault, finding.seq) == ("changed", 5)


async def test_export_with_retired_turns_verifies_elsewhere(thinned: Store) -> None:
    lines = [line async for line in export_lines(thinned)]
    export = Export(lines, "audit.jsonl")
    report = await verify(iterate(export.records), iterate(export.checkpoints), SIGNER.verifier())
    assert (report.finding, export.complete, len(export.records)) == (None, True, 11)


async def test_retired_turn_has_no_trace(thinned: Store) -> None:
    with pytest.raises(Refused, match="the first 5 records of `turn/main/s1/t1` were retired"):
        trace(await AuditLog(thinned).stream(TURN))
