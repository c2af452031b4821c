"""What waited under every version that was released is decided under this one, by a store and a server of then."""

import contextlib
import gzip
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from installations import record
from session_rig import Talk
from sqlalchemy import text
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, no, pay_tool, running_turns, withdrawn, yes

from signoff.activities import tool_activity
from signoff.contracts import names
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store, open_store
from signoff.store.upgrade import STEPS, VERSION_TABLE
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "installations"
VERSIONS = sorted(path.parent.name for path in FOLDER.glob("*/turns.json"))
RELEASED = re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)


@contextlib.asynccontextmanager
async def recorded_store(version: str, folder: Path) -> AsyncIterator[Store]:
    """The store of an installation of that version, opened by today's code."""
    (folder / record.STORE).write_bytes(gzip.decompress((FOLDER / version / f"{record.STORE}.gz").read_bytes()))
    async with open_store(f"sqlite:///{folder / record.STORE}") as store:
        yield store


@contextlib.asynccontextmanager
async def recorded_server(version: str, folder: Path) -> AsyncIterator[Client]:
    """A client of today's embedded server, which takes up the database of then."""
    (folder / record.SERVER).write_bytes(gzip.decompress((FOLDER / version / f"{record.SERVER}.gz").read_bytes()))
    async with run_server(ServerOptions(folder / record.SERVER, port=free_port(), ui_port=None)) as server:
        yield await Client.connect(server.address, data_converter=DATA_CONVERTER)


def recorded_turns(version: str) -> dict[str, TurnKey]:
    """The turns that waited, by what is to become of them."""
    turns = json.loads((FOLDER / version / record.TURNS).read_text(encoding="utf-8"))["turns"]
    return {name: TurnKey(*workflow_id.split("/")[1:]) for name, workflow_id in turns.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_recording_names_the_machine_it_was_made_on(version: str, tmp_path: Path) -> None:
    """Whatever speaks to the server is called by process and machine, as are the queues of each worker's own."""
    recorded = gzip.decompress((FOLDER / version / f"{record.SERVER}.gz").read_bytes())
    (tmp_path / record.SERVER).write_bytes(recorded)
    with contextlib.closing(sqlite3.connect(tmp_path / record.SERVER)) as server:
        queues = [bytes(row[0]) for row in server.execute("SELECT CAST(task_queue_id AS BLOB) FROM task_queues")]
    own = [name[1] for name in (re.search(rb"([\w.-]+):[0-9a-f]{8}-[0-9a-f]{4}-", each) for each in queues) if name]
    # One byte before the name may look like a letter of it: its length.
    assert own != []
    assert [name for name in own if not name.endswith(record.HOST.encode())] == []
    assert {*re.findall(rb"\d@([\w.-]+)@", recorded)} == {record.HOST.encode()}


def test_every_released_version_has_its_recording_and_this_one_too() -> None:
    """Nobody releases a version without recording it, and none that was released goes."""
    assert {*RELEASED, names.VERSION} <= {*VERSIONS}
    for version in VERSIONS:
        assert {*record.WORDS, "session"} <= recorded_turns(version).keys()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_store_of_then_is_brought_up_to_date_with_what_waits(version: str, tmp_path: Path) -> None:
    """Its tables are today's, and every request that waited is in today's list."""
    async with recorded_store(version, tmp_path) as store:
        step = await store.run(lambda connection: connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")))
        waiting = await RequestLists(store).list_waiting("main")
    assert step == STEPS[-1]
    assert len(waiting) == len(recorded_turns(version)) + 1
    assert {request.turn for request in waiting} == {key.turn for key in recorded_turns(version).values()}


@pytest.mark.parametrize("version", VERSIONS)
async def test_turns_of_then_are_decided_today(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its own end, with one effect each; today's catalog has one of their tools changed and one gone."""
    monkeypatch.setattr(tool_activity, "WORKERS_TRIED", 2)
    keys, ledger, longer = recorded_turns(version), Ledger(), pay_tool(Ledger()).requires_approval
    tools = [tool for tool in record.tools(ledger) if tool.name not in ("gone", "edit")]
    catalog = catalog_of([*tools, pay_tool(ledger, longer, name="edit", version="2")])
    async with (
        recorded_store(version, tmp_path) as store,
        recorded_server(version, tmp_path) as client,
        running_turns(
            client, store, record.QUEUE, catalog, ScriptedModel(record.react), people=record.people()
        ) as turns,
    ):
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
            await decide(yes(keys["voted"], subject="bo")),
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
    assert sorted(name for name, _, _ in ledger.rows) == ["edit", "pay", "pay", "pay", "twice"]
    assert answer == "done"
