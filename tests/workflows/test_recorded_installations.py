import asyncio
import contextlib
import gzip
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from call_rig import CallRig
from histories.call_scenarios import CALLS, ask_mcp
from histories.kind_scenarios import SESSIONS, TASKS
from histories.record import SCENARIOS
from installations import record
from mcp_upstream import Upstream
from session_rig import Talk
from sqlalchemy import text
from temporalio.client import Client, WorkflowExecutionStatus
from turn_fixtures import Ledger, RunningTurns, doubted, no, pay_tool, withdrawn, yes

from signoff.activities import run_once
from signoff.contracts import names
from signoff.contracts.audit import CloudEvent
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.gateway.events.event_sender import EventSender
from signoff.keys.signatures import PrivateKeys
from signoff.registry.manifest.subscription_sections import EventHandler
from signoff.registry.tool import Tool
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store, open_store
from signoff.store.upgrade import STEPS, VERSION_TABLE
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "installations"
VERSIONS = sorted(path.parent.name for path in FOLDER.glob("*/turns.json"))
RELEASED = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)


@contextlib.asynccontextmanager
async def recorded_store(version: str, folder: Path) -> AsyncIterator[Store]:
    (folder / record.STORE).write_bytes(gzip.decompress((FOLDER / version / f"{record.STORE}.gz").read_bytes()))
    async with open_store(f"sqlite:///{folder / record.STORE}") as store:
        yield store


@contextlib.asynccontextmanager
async def recorded_server(version: str, folder: Path) -> AsyncIterator[Client]:
    (folder / record.SERVER).write_bytes(gzip.decompress((FOLDER / version / f"{record.SERVER}.gz").read_bytes()))
    async with run_server(ServerOptions(folder / record.SERVER, port=free_port(), ui_port=None)) as server:
        yield await Client.connect(server.address, data_converter=DATA_CONVERTER)


@contextlib.asynccontextmanager
async def today(
    version: str,
    folder: Path,
    own_tools: Callable[[Ledger], list[Tool]] = record.tools,
    handlers: Mapping[str, EventHandler] = MappingProxyType({}),
) -> AsyncIterator[CallRig]:
    keys = PrivateKeys.model_validate_json((FOLDER / version / record.KEYS).read_text(encoding="utf-8"))
    async with (
        recorded_store(version, folder) as store,
        recorded_server(version, folder) as client,
        record.installation(client, store, keys, folder, own_tools, handlers) as (agent, _),
    ):
        yield agent


def _recorded(version: str, part: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((FOLDER / version / record.TURNS).read_text(encoding="utf-8"))[part]
    return found


def recorded_turns(version: str) -> dict[str, TurnKey]:
    return {name: _turn(workflow_id) for name, workflow_id in _recorded(version, "turns").items()}


def recorded_kinds(version: str) -> dict[str, str]:
    return _recorded(version, "kinds")


def _turn(workflow_id: str) -> TurnKey:
    return TurnKey(*workflow_id.split("/")[1:])


def recorded_calls(version: str) -> dict[str, str]:
    kinds = recorded_kinds(version)
    return {name: ".".join(_turn(kinds[name])) for name in CALLS}


@pytest.mark.parametrize("version", VERSIONS)
def test_recordings_name_no_machine(version: str, tmp_path: Path) -> None:
    recorded = gzip.decompress((FOLDER / version / f"{record.SERVER}.gz").read_bytes())
    (tmp_path / record.SERVER).write_bytes(recorded)
    with contextlib.closing(sqlite3.connect(tmp_path / record.SERVER)) as server:
        queues = [bytes(row[0]) for row in server.execute("SELECT CAST(task_queue_id AS BLOB) FROM task_queues")]
    own = [name[1] for name in (re.search(rb"([\w.-]+):[0-9a-f]{8}-[0-9a-f]{4}-", each) for each in queues) if name]
    # The byte before the name, its length, may look like a letter of it.
    assert own != []
    assert [name for name in own if not name.endswith(record.HOST.encode())] == []
    assert {*re.findall(rb"\d@([\w.-]+)@", recorded)} == {record.HOST.encode()}
    kept = recorded + gzip.decompress((FOLDER / version / f"{record.STORE}.gz").read_bytes())
    assert re.findall(rb"/(?:home|root|Users|work)/|site-packages", kept) == []


def test_every_released_version_has_a_recording() -> None:
    assert {*RELEASED, names.VERSION} <= {*VERSIONS}
    for version in VERSIONS:
        assert {*record.WORDS, "session"} <= recorded_turns(version).keys()


def test_installation_recording_contains_every_scenario() -> None:
    recorded = recorded_kinds(names.VERSION).keys()
    assert recorded == record.KINDS
    assert {name for name in SCENARIOS if name.startswith(("call_", "session_", "task_", "handler_"))} <= recorded


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_store_is_migrated_with_its_waiting_requests(version: str, tmp_path: Path) -> None:
    async with recorded_store(version, tmp_path) as store:
        step = await store.run(lambda connection: connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
        waiting = await RequestLists(store).list_waiting("main")
    assert step == STEPS[-1]
    kinds = recorded_kinds(version)
    in_sessions = [kinds[name].removeprefix("session/") for name in ("session_waiting", "session_went_on")]
    expected = [
        *("/".join(key) for key in recorded_turns(version).values()),
        *("/".join(_turn(kinds[name])) for name in ("call_proposed", "call_task")),
        *(f"{session}/a" for session in in_sessions),
    ]
    # One of the turns asks about two calls.
    assert len(waiting) == len(expected) + 1
    assert {f"{request.tenant}/{request.session}/{request.turn}" for request in waiting} == {*expected}


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_turns_are_decided_by_the_current_version(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_once, "WORKERS_TRIED", 2)
    keys, longer = recorded_turns(version), pay_tool(Ledger()).requires_approval

    def changed(ledger: Ledger) -> list[Tool]:
        kept = [tool for tool in record.tools(ledger) if tool.name not in ("gone", "edit")]
        return [*kept, pay_tool(ledger, longer, name="edit", version="2")]

    async with today(version, tmp_path, changed) as agent:
        turns = agent.rig.turns
        decide = turns.signoff.decide
        for key in keys.values():
            await turns.replays(key)
            await turns.waiting(key)
        receipts = [
            await decide(yes(keys["approved"])),
            await decide(no(keys["denied"])),
            await turns.signoff.withdraw(withdrawn(keys["withdrawn"])),
            await decide(yes(keys["removed"])),
            await decide(yes(keys["changed"])),
            await decide(yes(keys["voted"])),
            await decide(yes(keys["both"], "c1.1")),
            await decide(no(keys["both"], "c1.2")),
            await decide(yes(keys["doubted"], revision=2, verdict="happened", result="paid before")),
            await decide(yes(keys["session"])),
        ]
        await turns.until(keys["changed"], lambda view: record.revision(view) == 2)
        receipts.append(await decide(yes(keys["changed"], revision=2)))
        assert [receipt for receipt in receipts if receipt.status != "accepted"] == []
        ends = {name: (await turns.signoff.result(key)).calls for name, key in keys.items()}
        talk = Talk(turns, SessionKey("main", record.SESSION))
        await talk.say("thanks", "next")
        answer = await talk.answer("next")
    assert {name: [call.code for call in calls] for name, calls in ends.items()} == {
        "approved": ["ok"],
        "denied": ["denied"],
        "withdrawn": ["denied"],
        "removed": ["not_available"],
        "changed": ["ok"],
        "voted": ["ok"],
        "both": ["ok", "denied"],
        "doubted": ["ok"],
        "session": ["ok"],
    }
    assert sorted(name for name, _, _ in agent.rig.ledger.rows) == ["edit", "pay", "pay", "pay", "twice"]
    assert answer == "done"


async def _shown(agent: CallRig, call: str, state: str) -> dict[str, Any]:
    while (shown := await agent.show(call))["state"] != state:
        assert shown["state"] not in ("denied", "ended"), shown
        await asyncio.sleep(0.1)
    return shown


async def _refused(agent: CallRig, call: str) -> str:
    answer = await agent.use(call, "try-of-today")
    assert answer.status_code == 409, answer.text
    return str(answer.json()["code"])


async def _approve(agent: CallRig, call: str) -> None:
    await agent.decide(call)
    await _shown(agent, call, "permitted")


async def _use_once(agent: CallRig, call: str, key: str) -> None:
    first, again = await agent.use(call, key), await agent.use(call, key)
    assert (first.status_code, again.json()) == (200, first.json()), first.text
    assert await _refused(agent, call) == "used"
    assert (await agent.report(call)).json()["code"] == "ok"


async def _run_task(agent: CallRig, call: str) -> None:
    assert (await ask_mcp(agent, "tasks/get", taskId=call))["status"] == "working"
    await agent.decide(call)
    while (task := await ask_mcp(agent, "tasks/get", taskId=call))["status"] == "working":
        await asyncio.sleep(0.1)
    assert (task["status"], task["result"]["isError"]) == ("completed", False)


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_external_calls_end_under_the_current_version(version: str, tmp_path: Path) -> None:
    calls = recorded_calls(version)
    async with today(version, tmp_path) as agent:
        states = {name: (await agent.show(call))["state"] for name, call in calls.items()}
        assert {name: state for name, state in states.items() if state not in ("denied", "ended")} == {
            "call_proposed": "waiting",
            "call_permitted": "permitted",
            "call_used": "used",
            "call_task": "waiting",
        }
        assert await _refused(agent, calls["call_proposed"]) == "waiting"
        await _approve(agent, calls["call_proposed"])
        await _use_once(agent, calls["call_proposed"], "try-one-1")
        await _use_once(agent, calls["call_permitted"], "try-one-1")
        await _use_once(agent, calls["call_used"], "try-one-1")
        await _run_task(agent, calls["call_task"])
        ends = {name: await agent.show(call) for name, call in calls.items()}
        refused = {name: await _refused(agent, call) for name, call in calls.items()}
        late = await agent.report(calls["call_unreported"])
    told = {name: end["source"] if end["state"] == "denied" else end["code"] for name, end in ends.items()}
    assert told == {
        **dict.fromkeys(("call_proposed", "call_permitted", "call_used", "call_reported"), "ok"),
        **dict.fromkeys(("call_doubted", "call_run", "call_task"), "ok"),
        "call_failed": "execution_failed",
        "call_unreported": "in_doubt",
        "call_withdrawn": "cancelled",
        "call_withdrawn_permitted": "cancelled",
        "call_lapsed": "timeout",
        "call_denied": "human",
        "call_forbidden": "policy",
        "call_expired": "timeout",
    }
    assert ends["call_lapsed"]["reason"] == "the permit was not used in time"
    assert refused == {name: "denied" if end["state"] == "denied" else "used" for name, end in ends.items()}
    assert (late.status_code, late.json()["code"]) == (409, "conflict")
    assert [name for name, _, _ in agent.rig.ledger.rows] == ["wire"]


async def _answer_waiting(session: Talk) -> None:
    await session.turn("a", "waiting")
    await session.turns.signoff.decide(yes(session.turn_key("a")))
    assert await session.answer("a") == "done"


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_sessions_continue_under_the_current_version(version: str, tmp_path: Path) -> None:
    kinds = recorded_kinds(version)
    async with today(version, tmp_path) as agent:
        answers = {}
        for name in (each.__name__ for each in SESSIONS):
            session = Talk(agent.rig.turns, SessionKey(*kinds[name].split("/")[1:]))
            if name in ("session_waiting", "session_went_on"):
                await _answer_waiting(session)
            await session.say("thanks", "next")
            answers[name] = await session.answer("next")
    assert answers == {each.__name__: "done" for each in SESSIONS}
    assert [name for name, _, _ in agent.rig.ledger.rows] == ["pay", "pay"]


async def _say_it_happened(turns: RunningTurns, key: TurnKey) -> None:
    request = (await turns.until(key, doubted)).calls[0].approval
    assert request is not None
    decision = yes(key, revision=request.revision, verdict="happened", result="done before")
    assert (await turns.signoff.decide(decision)).status == "accepted"


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_calls_of_lost_workers_are_asked_about(version: str, tmp_path: Path) -> None:
    kinds = recorded_kinds(version)
    wanted = ("tool_running", *(each.__name__ for each in TASKS))
    async with today(version, tmp_path) as agent:
        turns = agent.rig.turns
        keys = {name: _turn(kinds[name]) for name in wanted}
        for name in ("tool_running", "task_running"):
            await _say_it_happened(turns, keys[name])
        ends = {name: await turns.signoff.result(key) for name, key in keys.items()}
        begun = Upstream(tmp_path).calls
    assert {name: (end.state, end.calls[0].code) for name, end in ends.items()} == {
        "tool_running": ("complete", "ok"),
        "task_running": ("complete", "ok"),
        "task_complete": ("complete", "ok"),
        "task_failed": ("complete", "execution_failed"),
        "task_lost": ("complete", "ok"),
        "task_cancelled": ("cancelled", "in_doubt"),
    }
    assert begun == []


# Field 4 of a timer is its type, and 16 the deletion of an ended workflow.
_DELETIONS = "SELECT min(visibility_timestamp) FROM timer_tasks WHERE instr(data, x'2010') > 0"


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_server_keeps_its_workflows_for_decades(version: str, tmp_path: Path) -> None:
    path = tmp_path / record.SERVER
    path.write_bytes(gzip.decompress((FOLDER / version / f"{record.SERVER}.gz").read_bytes()))
    with contextlib.closing(sqlite3.connect(path)) as database:
        [(first,)] = database.execute(_DELETIONS).fetchall()
    assert first > "2060"


@pytest.mark.parametrize("version", VERSIONS)
async def test_recorded_handler_runs_receive_their_events(version: str, tmp_path: Path) -> None:
    kinds, given = recorded_kinds(version), dict[str, list[str]](done=[], failed=[], running=[])

    def taking(name: str) -> EventHandler:
        async def take(event: CloudEvent) -> None:
            given[name].append(event.id)

        return take

    async with today(version, tmp_path, handlers={name: taking(name) for name in given}) as agent:
        rig, client = agent.rig, agent.rig.turns.client
        senders = [EventSender(rig.deps, to) for to in rig.deps.catalog.subscriptions.values()]
        owed = text("SELECT count(*) FROM event_deliveries")
        while any([await sender.step() for sender in senders]) or await rig.deps.store.run(
            lambda connection: connection.scalar(owed)
        ):
            await asyncio.sleep(0.1)
        ends = {name: (await client.get_workflow_handle(kinds[f"handler_{name}"]).describe()).status for name in given}
    assert {*ends.values()} == {WorkflowExecutionStatus.COMPLETED}
    assert {name: len(events) for name, events in given.items()} == {"done": 2, "failed": 2, "running": 1}
    assert given["failed"][-1] == given["running"][-1] == given["done"][-1]
