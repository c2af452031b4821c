import asyncio
import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from agentack.parser import read_jsonl
from cli_kit import Cli, assert_one_sentence
from served_stack import MANIFEST

from signoff.approvals.audit_events import admin_entry, turn_entry
from signoff.audit.log import AuditLog
from signoff.contracts.audit import AuditEntry
from signoff.store.store import open_store

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
STORE = Path(".signoff/signoff.db")
TURN = "turn/main/s/t-0001"


def records(*entries: AuditEntry) -> None:
    async def write() -> None:
        STORE.parent.mkdir(exist_ok=True)
        async with open_store(f"sqlite:///{STORE}") as store:
            await AuditLog(store).append(entries)

    asyncio.run(write())


def touched(statement: str) -> None:
    with sqlite3.connect(STORE) as connection:
        connection.execute(statement)
    connection.close()


def write(name: str, text: str) -> None:
    Path(name).write_text(text)


@pytest.fixture
async def audit(cli: Cli, clean_env: pytest.MonkeyPatch) -> Cli:
    assert (await cli("keys", "create")).code == 0
    turns = [turn_entry("main", "s", f"t-000{n}", AT, subject="guest", actor="desk", channel="api") for n in (1, 2)]
    more = AuditEntry(stream=TURN, key="a", kind="attempt", at=AT, tenant="main", subject="eve", data={"status": "x"})
    await asyncio.to_thread(records, *turns, more, admin_entry("main", "freeze", "ana", AT, reason="a leak"))
    return cli


async def test_verify_counts_verified_records(audit: Cli) -> None:
    ran = await audit("audit", "verify")
    assert ran.code == 0, ran.err
    assert "6 records in 3 streams" in ran.out
    assert "no checkpoint" in ran.out
    await audit("audit", "checkpoint")
    found = (await audit("audit", "verify", "--json")).data
    assert (found["whole"], found["checkpoints"], found["uncovered"]) == (True, 1, 0)


async def test_verify_reports_an_empty_store(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    ran = await cli("audit", "verify")
    assert (ran.code, ran.out.strip()) == (0, "nothing is recorded yet")
    assert "nothing is recorded of `t`" in assert_one_sentence(await cli("audit", "show", "t"))


async def test_verify_names_the_first_fault_and_fails(audit: Cli) -> None:
    touched("UPDATE audit_records SET subject = 'bob' WHERE subject = 'eve'")
    ran = await audit("audit", "verify")
    assert (ran.code, ran.out.strip()) == (1, f"changed: record 2 of `{TURN}` was changed after it was written")
    finding = (await audit("audit", "verify", "--json")).data["finding"]
    assert (finding["fault"], finding["stream"], finding["seq"]) == ("changed", TURN, 2)


async def test_saved_checkpoint_detects_a_truncated_store(audit: Cli) -> None:
    assert (await audit("audit", "checkpoint", "--out", "kept.json")).code == 0
    assert (await audit("audit", "verify", "--checkpoint", "kept.json")).code == 0
    for table in ("audit_records", "audit_heads", "audit_checkpoints"):
        touched(f"DELETE FROM {table}")
    assert (await audit("audit", "verify")).code == 0
    ran = await audit("audit", "verify", "--checkpoint", "kept.json")
    assert (ran.code, ran.out.startswith("truncated: the saved checkpoint 1 is missing")) == (1, True)


async def test_export_is_verified_elsewhere_with_the_public_keys_alone(audit: Cli, tmp_path: Path) -> None:
    await audit("audit", "checkpoint")
    assert (await audit("audit", "export", "--out", "audit.jsonl")).out == "9 lines written to audit.jsonl\n"
    await audit("keys", "export", "--out", "public.json")
    ran = await audit("audit", "verify", "audit.jsonl", "--keys", "public.json", "--json")
    assert (ran.code, ran.data["records"], ran.data["checkpoints"]) == (0, 6, 1)
    text = await asyncio.to_thread(Path("audit.jsonl").read_text)
    write("changed.jsonl", text.replace('"eve"', '"bob"'))
    write("cut.jsonl", "\n".join(text.splitlines()[:-1]))
    assert (await audit("audit", "verify", "changed.jsonl")).out.startswith("changed: record 2 of")
    cut = await audit("audit", "verify", "cut.jsonl")
    assert (cut.code, "the export is incomplete" in cut.out) == (1, True)
    assert "public.json:1 is not a line of an audit export" in assert_one_sentence(
        await audit("audit", "verify", "public.json")
    )
    assert "`nowhere.jsonl` cannot be read" in assert_one_sentence(await audit("audit", "verify", "nowhere.jsonl"))


async def test_export_prints_the_lines_of_one_turn(audit: Cli) -> None:
    ran = await audit("audit", "export", "--turn", "t-0001")
    assert [json.loads(line)["type"] for line in ran.out.splitlines()] == ["export", "record", "record", "end"]


async def test_show_prints_a_turn_as_a_timeline(audit: Cli) -> None:
    ran = await audit("audit", "show", "t-0001")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == TURN
    assert lines[1].split() == ["2026-03-01", "09:30:00", "guest", "asked", "desk", "over", "api"]
    assert lines[-1] == "unchanged: 2 records, none changed or missing"
    frozen = await audit("audit", "show", "admin/main")
    assert "freeze: a leak" in frozen.out
    assert "fits several turns" in assert_one_sentence(await audit("audit", "show", "t-0"))
    assert "nothing is recorded of `t-0003x`" in assert_one_sentence(await audit("audit", "show", "t-0003x"))


async def test_show_reports_a_changed_turn(audit: Cli) -> None:
    touched(f"DELETE FROM audit_records WHERE stream = '{TURN}' AND seq = 2")
    ran = await audit("audit", "show", "main.s.t-0001")
    assert (ran.code, "its end was cut off" in ran.out) == (1, True)


async def test_checkpoint_needs_records_and_a_key(cli: Cli, clean_env: pytest.MonkeyPatch) -> None:
    assert "signoff keys create" in assert_one_sentence(await cli("audit", "checkpoint"))
    await cli("keys", "create")
    for table in ("audit_records", "audit_heads"):
        touched(f"DELETE FROM {table}")
    assert "nothing is recorded yet" in assert_one_sentence(await cli("audit", "checkpoint"))


async def test_turn_is_exported_for_the_published_checker(audit: Cli) -> None:
    ran = await audit("audit", "export", "--format", "agentack", "--turn", "t-0001", "--out", "trace.jsonl")
    assert (ran.code, ran.out.strip()) == (0, "1 lines written to trace.jsonl")
    (event,) = read_jsonl("trace.jsonl")
    assert (event.type, event.session_id) == ("session_end", TURN)
    for words in ((), ("--tenant", "main", "--turn", "t-0001")):
        assert "of one turn" in assert_one_sentence(await audit("audit", "export", "--format", "agentack", *words))
    touched("UPDATE audit_records SET subject = 'bob' WHERE subject = 'eve'")
    ran = await audit("audit", "export", "--format", "agentack", "--turn", "t-0001")
    assert "was changed after it was written: see `signoff audit verify`" in assert_one_sentence(ran)


async def test_acts_of_operators_are_recorded(audit: Cli, clean_env: pytest.MonkeyPatch) -> None:
    clean_env.setenv("SIGNOFF_MANIFEST", str(MANIFEST))
    for _ in range(2):
        await audit("store", "freeze", "main", "--reason", "a second leak")
    assert (await audit("store", "unfreeze", "main")).code == 0
    assert (await audit("store", "unfreeze", "main")).code == 1
    ran = await audit("audit", "show", "admin/main", "--json")
    acts = [(record["subject"], json.loads(record["data"])["act"]) for record in ran.data["records"]]
    assert acts == [("", "keys create"), ("", "keys create"), ("ana", "freeze"), ("", "freeze"), ("", "unfreeze")]
