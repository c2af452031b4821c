import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from audit_kit import AT, OTHER, SIGNER, TURN, entry, filled, tamper, verified
from hypothesis import assume, given
from hypothesis import strategies as st
from some import some
from tables import table

from signoff.audit.checkpoints import Checkpoints, StreamHead
from signoff.audit.export import Export, export_lines, iterate, read_export
from signoff.audit.log import CHAIN, AuditLog
from signoff.audit.record import FIRST, Record, place_record, record_from_entry
from signoff.audit.stream_report import report_stream
from signoff.audit.verifier import VerificationReport, verify, with_heads
from signoff.contracts.errors import Refused
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.store.store import Store, open_store

IN_TURN = f"stream = '{TURN}'"


def summary(report: VerificationReport) -> tuple[str, str, int]:
    assert report.finding is not None
    fault, stream, seq, message = report.finding
    assert "\n" not in message
    assert stream in message or "checkpoint" in message
    return fault, stream, seq


async def test_untouched_log_verifies(store: Store) -> None:
    log = await filled(store)
    assert await Checkpoints(store).take(SIGNER) is not None
    await log.append([entry(6)])
    report = await verified(store)
    assert (report.finding, report.streams, report.records, report.checkpoints) == (None, 2, 11, 1)
    assert (report.uncovered, report.covered_at is not None) == (1, True)


async def test_empty_log_verifies(store: Store) -> None:
    assert await verified(store) == VerificationReport(None)


@pytest.mark.parametrize(
    ("change", "fault", "seq"),
    [
        ("UPDATE audit_records SET data = replace(data, '3', '4') WHERE {turn} AND seq = 3", "changed", 3),
        ("UPDATE audit_records SET subject = 'eve' WHERE {turn} AND seq = 1", "changed", 1),
        ("UPDATE audit_records SET at = '2020' WHERE {turn} AND seq = 5", "changed", 5),
        ("UPDATE audit_records SET written_at = written_at + 1 WHERE {turn} AND seq = 2", "changed", 2),
        ("UPDATE audit_records SET prev = hash WHERE {turn} AND seq = 2", "changed", 2),
        ("UPDATE audit_records SET data = '' WHERE {turn} AND seq = 2", "changed", 2),
        ("DELETE FROM audit_records WHERE {turn} AND seq = 3", "missing", 3),
        ("DELETE FROM audit_records WHERE {turn} AND seq = 1", "missing", 1),
        ("DELETE FROM audit_records WHERE {turn} AND seq > 3", "truncated", 4),
        ("DELETE FROM audit_records WHERE {turn}", "truncated", 1),
        ("UPDATE audit_heads SET hash = 'x' WHERE {turn}", "changed", 5),
    ],
)
async def test_altered_entry_is_found(store: Store, store_url: str, change: str, fault: str, seq: int) -> None:
    await filled(store)
    await tamper(store_url, change.format(turn=IN_TURN))
    assert summary(await verified(store)) == (fault, TURN, seq)


async def test_closed_gap_is_found(store: Store, store_url: str) -> None:
    await filled(store)
    await tamper(
        store_url,
        f"DELETE FROM audit_records WHERE {IN_TURN} AND seq = 2",
        *(f"UPDATE audit_records SET seq = {seq - 1} WHERE {IN_TURN} AND seq = {seq}" for seq in (3, 4, 5)),
    )
    assert summary(await verified(store)) == ("missing", TURN, 2)


async def test_exchanged_entries_are_found(store: Store, store_url: str) -> None:
    await filled(store)
    swap = "UPDATE audit_records SET seq = {to} WHERE " + IN_TURN + " AND seq = {was}"
    await tamper(store_url, *(swap.format(was=was, to=to) for was, to in ((2, 99), (4, 2), (99, 4))))
    assert summary(await verified(store)) == ("reordered", TURN, 2)


def forged(records: list[Record], change: Callable[[Record], Record]) -> list[str]:
    statements, prev = [], FIRST
    for record in records:
        new = place_record(change(record), record.seq, prev, record.written_at)
        prev = new.hash
        statements.append(
            f"UPDATE audit_records SET data = '{new.data}', prev = '{new.prev}', hash = '{new.hash}'"
            f" WHERE stream = '{new.stream}' AND seq = {new.seq}"
        )
    return [*statements, f"UPDATE audit_heads SET hash = '{prev}' WHERE stream = '{records[0].stream}'"]


async def test_rewritten_chain_is_found_by_its_checkpoint(store: Store, store_url: str) -> None:
    log = await filled(store)
    await Checkpoints(store).take(SIGNER)
    lie = forged(await log.stream(TURN), lambda record: replace(record, data='{"number":7}'))
    await tamper(store_url, *lie)
    assert summary(await verified(store)) == ("changed", TURN, 5)


async def test_truncation_including_the_heads_is_found_by_the_checkpoint(store: Store, store_url: str) -> None:
    log = await filled(store)
    await Checkpoints(store).take(SIGNER)
    third = (await log.stream(TURN))[2]
    await tamper(
        store_url,
        f"DELETE FROM audit_records WHERE {IN_TURN} AND seq > 3",
        f"UPDATE audit_heads SET seq = 3, hash = '{third.hash}' WHERE {IN_TURN}",
    )
    assert summary(await verified(store)) == ("truncated", TURN, 4)
    await tamper(store_url, f"DELETE FROM audit_records WHERE {IN_TURN}", f"DELETE FROM audit_heads WHERE {IN_TURN}")
    assert summary(await verified(store)) == ("truncated", TURN, 1)


async def test_truncation_to_an_earlier_checkpoint_is_found_by_an_external_one(store: Store, store_url: str) -> None:
    # The owner of the database can restore an earlier state. Only a checkpoint kept elsewhere reveals it. Without
    # one, or with one from before the cut, nothing can be found, as the documents state.
    log = await filled(store)
    early = await Checkpoints(store).take(SIGNER)
    await log.append([entry(6)])
    late = await Checkpoints(store).take(SIGNER)
    assert early is not None
    assert late is not None
    fifth = (await log.stream(TURN))[4]
    await tamper(
        store_url,
        f"DELETE FROM audit_records WHERE {IN_TURN} AND seq > 5",
        f"UPDATE audit_heads SET seq = 5, hash = '{fifth.hash}' WHERE {IN_TURN}",
        "DELETE FROM audit_checkpoints WHERE number = 2",
        f"UPDATE audit_heads SET seq = 1, hash = '{early.statement.hash}' WHERE stream = 'checkpoints'",
    )
    assert (await verified(store)).finding is None
    assert (await verified(store, kept=early)).finding is None
    assert summary(await verified(store, kept=late)) == ("truncated", "checkpoints", 2)


async def test_altered_checkpoints_are_found(store: Store, store_url: str) -> None:
    log = await filled(store)
    points = Checkpoints(store)
    for number in (6, 7, 8):
        await log.append([entry(number)])
        await points.take(SIGNER)
    stranger = Signer(PrivateKeys(keys=(new_key(AT),)))
    assert summary(await verified(store, stranger)) == ("unsigned", "checkpoints", 1)
    kept = await points.last()
    assert summary(await verified(store, kept=replace(kept, key_id="x") if kept else None))[0] == "unsigned"
    cases = {
        "UPDATE audit_checkpoints SET signature = '' WHERE number = 3": ("unsigned", 3),
        "UPDATE audit_checkpoints SET body = replace(body, '\"seq\":7', '\"seq\":6') WHERE number = 2": ("unsigned", 2),
        "DELETE FROM audit_checkpoints WHERE number = 2": ("missing", 2),
        "DELETE FROM audit_checkpoints WHERE number > 1": ("truncated", 3),
    }
    for change, (fault, number) in cases.items():
        await tamper(store_url, change)
        assert summary(await verified(store)) == (fault, "checkpoints", number)


async def test_checkpoint_of_another_log_is_rejected(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await Checkpoints(store).take(SIGNER)
    async with open_store(f"sqlite:///{tmp_path}/other.db") as other:
        await filled(other, each=2)
        foreign = await Checkpoints(other).take(SIGNER)
    assert summary(await verified(store, kept=foreign)) == ("changed", "checkpoints", 1)


async def test_checkpoint_is_written_only_for_new_entries(store: Store) -> None:
    log = await filled(store)
    points = Checkpoints(store)
    first = await points.take(SIGNER)
    assert await points.take(SIGNER) is None
    await log.append([entry(6, OTHER)])
    second = await points.take(SIGNER)
    assert first is not None
    assert second is not None
    assert [head.stream for head in first.statement.heads] == [TURN, OTHER]
    assert [(head.stream, head.seq) for head in second.statement.heads] == [(OTHER, 6)]
    assert second.statement.previous == first.statement.hash
    assert await points.last() == second


async def lines_of(store: Store, **only: str) -> list[str]:
    return [line async for line in export_lines(store, **only)]


async def checked(export: Export) -> VerificationReport:
    return await verify(iterate(export.records), iterate(export.checkpoints), SIGNER.verifier())


async def test_export_verifies_without_its_database(store: Store, tmp_path: Path) -> None:
    await filled(store)
    await Checkpoints(store).take(SIGNER)
    file = tmp_path / "audit.jsonl"
    file.write_text("\n".join(await lines_of(store)) + "\n")
    await store.close()
    export = read_export(file)
    assert (export.whole, export.complete) == (True, True)
    report = await checked(export)
    assert (report.finding, report.records, report.checkpoints, report.uncovered) == (None, 10, 1, 0)


@pytest.mark.parametrize(
    ("change", "fault", "seq"),
    [
        (lambda lines: [line.replace('"number":3', '"number":4') for line in lines], "changed", 3),
        (lambda lines: [line for line in lines if '"number":3' not in line], "missing", 3),
        (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], "reordered", 3),
        (lambda lines: [line for line in lines if not line.endswith('"number":5}}')], "truncated", 5),
        (lambda lines: [*lines[:2], *lines[3:7], lines[7], lines[2], *lines[8:]], "missing", 1),
    ],
)
async def test_altered_export_is_found(
    store: Store, change: Callable[[list[str]], list[str]], fault: str, seq: int
) -> None:
    await filled(store)
    await Checkpoints(store).take(SIGNER)
    lines = await lines_of(store)
    assert summary(await checked(Export(change(lines), "audit.jsonl"))) == (fault, TURN, seq)


async def test_mixed_streams_in_a_file_are_reported_as_reordered(store: Store) -> None:
    await filled(store)
    lines = [line for line in await lines_of(store) if '"type":"record"' in line]
    assert summary(await checked(Export([*lines[:3], *lines[5:], *lines[3:5]], "x"))) == ("reordered", TURN, 4)


async def test_export_without_its_end_is_incomplete(store: Store) -> None:
    await filled(store)
    lines = await lines_of(store)
    assert Export(lines[:-1], "x").complete is False
    assert Export([*lines[:-2], lines[-1]], "x").complete is False


async def test_export_of_one_tenant_or_turn_shows_no_other(store: Store) -> None:
    await filled(store)
    await AuditLog(store).append([replace(entry(1, "turn/else/s/t"), tenant="else")])
    await Checkpoints(store).take(SIGNER)
    theirs = await lines_of(store, tenant="else")
    assert [json.loads(line)["type"] for line in theirs] == ["export", "record", "end"]
    assert "main" not in "".join(theirs)
    one = Export(await lines_of(store, stream=OTHER), "x")
    assert ({record.stream for record in one.records}, one.whole) == ({OTHER}, False)
    assert (await checked(one)).finding is None


@table("text", "", "{", "[]", '{"type":"other"}', '{"type":"record"}', '{"type":"checkpoint"}', "\ud800")
def test_file_that_is_not_an_export_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"`x` is empty|x:1 is not a line"):
        Export([text], "x")


@given(
    field=st.sampled_from(["stream", "key", "kind", "at", "tenant", "subject", "data", "prev", "hash"]),
    seq=st.integers(1, 6),
    text=st.text(max_size=5),
)
async def test_change_of_any_entry_field_is_found(field: str, seq: int, text: str) -> None:
    records, prev = [], FIRST
    for number in range(1, 7):
        records.append(place_record(record_from_entry(entry(number)), number, prev, 1_000))
        prev = records[-1].hash
    changed = replace(records[seq - 1], **{field: text})
    assume(changed != records[seq - 1])
    records[seq - 1] = changed
    report = await verify(iterate(records), iterate([]), SIGNER.verifier())
    assert report.finding is not None


async def test_checkpoint_needs_a_key_valid_at_its_time(store: Store) -> None:
    await filled(store)
    point = some(await Checkpoints(store).take(SIGNER))
    for hours, holds in ((1, True), (-1, False)):
        key = new_key(AT)
        at = point.statement.made_at + timedelta(hours=hours)
        retired = Signer(PrivateKeys(keys=(key,)))
        signed = retired.sign_bytes("audit checkpoint", point.statement.body)
        old = PrivateKeys(keys=(replace(key, retired_at=at), new_key(AT)))
        mine = replace(point, key_id=signed.key_id, signature=signed.signature)
        assert mine.holds(Signer(old).verifier()) is holds


async def test_deleted_head_is_found(store: Store, store_url: str) -> None:
    log = await filled(store)
    assert await Checkpoints(store).take(SIGNER) is not None
    for stream in (TURN, CHAIN):
        await tamper(store_url, f"DELETE FROM audit_heads WHERE stream = '{stream}'")
        report = await verified(store)
        assert (summary(report), stream in some(report.finding).message) == (("missing", stream, 0), True)
        assert await log.append([entry(5)]) == 0
        assert await log.append([entry(6), entry(7)]) == (2 if stream == TURN else 0)
        if stream == CHAIN:
            point = some(await Checkpoints(store).take(SIGNER))
            assert point.statement.number == 2
        assert (await verified(store)).finding is None
    assert [record.seq for record in await log.stream(TURN)] == [*range(1, 8)]


async def test_stream_begun_during_verification_is_not_missing(store: Store) -> None:
    points, before = Checkpoints(store), [StreamHead(stream=TURN, seq=1, hash="")]
    await filled(store, OTHER)
    report = await verify(AuditLog(store).records(), points.all(), SIGNER.verifier(), heads=before[:0])
    assert report.headless == (OTHER,)
    assert with_heads(report, await points.heads()).finding is None
    assert with_heads(report, before).finding is not None


@pytest.mark.parametrize("grown", [TURN, OTHER])
async def test_stream_that_grows_during_its_report_is_not_reported_as_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch, grown: str
) -> None:
    log = await filled(store)
    read, more = AuditLog.stream, iter([entry(6, grown), entry(7, grown)])

    async def read_then_grow(self: AuditLog, stream: str) -> list[Record]:
        records = await read(self, stream)
        await log.append(each for each in [next(more, None)] if each is not None)
        return records

    monkeypatch.setattr(AuditLog, "stream", read_then_grow)
    report = await report_stream(store, TURN, SIGNER.verifier())
    assert (report.finding, len(report.records)) == (None, 7 if grown == TURN else 5)
