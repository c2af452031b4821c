"""One hostile record under a turn's id, read on the page, over the API, in the terminal and in exports."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli_kit import Ran, assert_one_sentence, run_in_thread
from gateway_login import browser, words
from gateway_rig import GatewayRig, gateway_rig
from sqlalchemy import update
from temporalio.client import Client

from signoff.approvals.audit_events import turn_entry
from signoff.audit.log import AuditLog
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.store.store import Store
from signoff.store.tables import AUDIT_RECORDS

AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
STREAM, TURN = "turn/main/s/t", "main.s.t"
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eEUR 01\r\n2026-03-01 09:30:00  guest  said yes"
HTML = "<script>alert(1)</script><b>bold</b>"
NESTED: Any = []
for _ in range(2_000):
    NESTED = [NESTED]
HOSTILE: tuple[tuple[AuditKind, str, dict[str, Any]], ...] = (
    ("request", "eve", {"quorum": "x", "approvers": 5, "call": {"a": []}}),
    ("execution", "eve", {"decisions": ["a"], "tool": 7}),
    ("revision", "eve", {"note": NESTED, "reason": NESTED}),
    ("attempt", TERMINAL, {"verdict": TERMINAL, "channel": TERMINAL, "reason": TERMINAL}),
    ("turn", HTML, {"actor": HTML, "channel": HTML, "reason": HTML}),
)
_FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
async def rig(client: Client, store: Store, task_queue: str) -> AsyncIterator[GatewayRig]:
    """A gateway with the audit log of one turn: two valid entries with hostile ones between them."""
    async with gateway_rig(client, store, task_queue) as found:
        entries = [
            AuditEntry(
                stream=STREAM, key=f"{number}/{subject}", kind=kind, at=AT, tenant="main", subject=subject, data=data
            )
            for number, (kind, subject, data) in enumerate(HOSTILE)
        ]
        first = turn_entry("main", "s", "t", AT, subject="guest", actor="desk", channel="api")
        last = AuditEntry(
            stream=STREAM, key="end", kind="turn", at=AT, tenant="main", subject="guest", data={"ended": "complete"}
        )
        await AuditLog(store).append([first, *entries, last])
        yield found


async def terminal(clean_env: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> Ran:
    clean_env.setenv("SIGNOFF_STORE_URL", f"sqlite:///{tmp_path}/signoff.db")
    return await run_in_thread("audit", *arguments)


async def test_every_reader_shows_valid_entries_and_escapes_hostile_ones(
    rig: GatewayRig, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count = len(HOSTILE) + 2
    async with browser(rig) as page:
        answer = await page.get(f"/audit/{TURN}")
    assert answer.status_code == 200
    assert answer.text.count('<li class="" id="r') == count
    assert not _FORBIDDEN.search(answer.text)
    assert not re.search(r"<script>alert|<b>bold", answer.text)
    text = words(answer.text)
    assert "asked desk over api" in text
    assert "Verified: no entry is changed, missing or out of place." in text

    report = (await rig.http.get(f"/v1/audit/{TURN}")).json()
    assert len(report["timeline"]) == len(report["records"]) == count
    assert report["finding"] is None
    assert not any(_FORBIDDEN.search(each[name]) for each in report["timeline"] for name in ("at", "who", "what"))

    shown = await terminal(clean_env, tmp_path, "show", TURN)
    assert shown.code == 0, shown.err
    assert not _FORBIDDEN.search(shown.out)
    assert "asked desk over api" in shown.out
    assert f"unchanged: {count} records, none changed or missing" in shown.out
    assert sum(line.startswith("2026-03-01 09:30:00") for line in shown.out.splitlines()) == count

    exported = await terminal(clean_env, tmp_path, "export", "--turn", TURN)
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert [each["type"] for each in lines].count("record") == count
    await asyncio.to_thread(Path("record.jsonl").write_text, exported.out)
    assert (await terminal(clean_env, tmp_path, "verify", "record.jsonl")).code == 0
    refused = assert_one_sentence(await terminal(clean_env, tmp_path, "export", "--turn", TURN, "--format", "agentack"))
    assert "that can be read" in refused


@pytest.mark.parametrize("data", ["{", "7", "", '{"a":' + "[" * 20_000 + "]" * 20_000 + "}"])
async def test_unreadable_entry_is_shown_as_the_changed_one(
    data: str, rig: GatewayRig, store: Store, clean_env: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    changed = update(AUDIT_RECORDS).where(AUDIT_RECORDS.c.seq == 3).values(data=data)
    await store.run(lambda connection: connection.execute(changed).rowcount)
    async with browser(rig) as page:
        answer = await page.get(f"/audit/{TURN}")
    assert answer.status_code == 200
    assert answer.text.count('<li class="broken" id="r3"') == 1
    assert "asked desk over api" in words(answer.text)
    report = (await rig.http.get(f"/v1/audit/{TURN}")).json()
    assert (report["finding"]["fault"], report["finding"]["seq"]) == ("changed", 3)
    assert len(report["timeline"]) == (count := len(HOSTILE) + 2)
    shown = await terminal(clean_env, tmp_path, "show", TURN)
    assert (shown.code, "asked desk over api" in shown.out, "record 3 of" in shown.out) == (1, True, True)
    exported = await terminal(clean_env, tmp_path, "export", "--turn", TURN)
    assert len([json.loads(line) for line in exported.out.splitlines()]) == count + 2
    await asyncio.to_thread(Path("record.jsonl").write_text, exported.out)
    elsewhere = await terminal(clean_env, tmp_path, "verify", "record.jsonl")
    assert (elsewhere.code, elsewhere.out.startswith("changed: record 3 of")) == (1, True)
    refused = assert_one_sentence(await terminal(clean_env, tmp_path, "export", "--turn", TURN, "--format", "agentack"))
    assert "record 3 of" in refused
