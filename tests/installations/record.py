"""Records an installation with turns that wait, its store and its server's database, for later versions to take up.

Run by hand once for each release, at the version to be released, and until 0.1.0 is released whenever a shape changes:

    PYTHONPATH=tests unshare --uts --map-root-user \\
        sh -c 'hostname recorder; .venv/bin/python tests/installations/record.py'

Workers and server write the machine's name down, so it runs under another one, and refuses to under the machine's. It
writes `tests/installations/<version>/`. What a released version recorded is never changed: such are out there.
"""

import asyncio
import gzip
import json
import socket
import sqlite3
import sys
import tempfile
from pathlib import Path

from session_rig import message
from temporalio.client import Client
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, catalog_of, pay_tool, running_turns, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.names import ENGINE, VERSION
from signoff.contracts.turn import TurnView
from signoff.people.directory import Directory, development_directory
from signoff.registry.tool import Tool
from signoff.store.store import open_store
from signoff.store.tickets import ticket_key
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

HERE = Path(__file__).parent
QUEUE = "recorded"
HOST = "recorder"
"""The machine's name in what is recorded."""
SERVER, STORE, TURNS = "temporal.db", "signoff.db", "turns.json"
_YEARS = 50 * 365 * 86_400.0
"""How long the recorded requests may be answered: they are as long as there are versions."""
# A policy has people asked for a year at most; copied, it is not looked at again.
_LONG = ApprovalPolicy().model_copy(update={"timeout": _YEARS})
_TWICE = ApprovalPolicy(quorum=2).model_copy(update={"timeout": _YEARS})
_NAMES = ("pay", "edit", "gone", "lost", "twice")
SESSION = "talk"
"""The session in which a turn waits."""
WORDS = {
    "approved": "pay", "denied": "pay", "withdrawn": "pay", "removed": "gone", "changed": "edit",
    "voted": "twice", "both": "pay pay", "doubted": "lost",
}  # fmt: skip
"""Each turn that is started by itself, and which tools it calls."""


def tools(ledger: Ledger) -> list[Tool]:
    """The tools of the recorded installation; one has another definition since, and one is gone."""
    policies = {name: _TWICE if name == "twice" else _LONG for name in _NAMES}
    return [pay_tool(ledger, policy, name=name) for name, policy in policies.items()]


def people() -> Directory:
    """Two who may approve, beside the built-in ones."""
    return development_directory([a_person(name) for name in ("ana", "bo")])


def react(request: CompletionRequest) -> Completion:
    """Calls each tool that the words name, then says that it is done."""
    named = [word for word in last_user_text(request).split() if word in _NAMES]
    if results(request) or not named:
        return respond("done")
    return calls(*((name, {"amount": 20, "to": "Ana"}) for name in named))


async def _suspend(turns: RunningTurns) -> dict[str, TurnKey]:
    """Starts every turn and brings it to where it waits."""
    keys = {name: await turns.start(words) for name, words in WORDS.items()}
    for name, key in keys.items():
        await turns.waiting(key, 2 if name == "both" else 1)
    await turns.signoff.decide(yes(keys["voted"], subject="ana"))
    # As a worker leaves it that is lost in the middle of the side effect.
    request = (await turns.waiting(keys["doubted"])).calls[0].approval
    if request is not None:
        ticket = ticket_key(request.digest, 1)
        await turns.store.claim(ticket, workflow=keys["doubted"].workflow_id, call="c1.1", tool="lost")
    await turns.signoff.decide(yes(keys["doubted"]))
    await turns.until(keys["doubted"], lambda view: revision(view) == 2)
    session = SessionKey("main", SESSION)
    await turns.signoff.say(session, message("pay", "first"), actor="desk")
    keys["session"] = TurnKey("main", SESSION, "first")
    await turns.waiting(keys["session"])
    for key in keys.values():
        await turns.suspended(key)
    return keys


def revision(view: TurnView) -> int:
    """Which revision of its first call a turn asks people about."""
    request = view.calls[0].approval
    return request.revision if request is not None and request.state == "pending" else 0


async def play(folder: Path) -> dict[str, str]:
    """Plays the turns on a server and a store in `folder`; returns the workflow id of each."""
    options = ServerOptions(folder / SERVER, port=free_port(), ui_port=None)
    async with run_server(options) as server, open_store(f"sqlite:///{folder / STORE}") as store:
        client = await Client.connect(server.address, identity="recorder", data_converter=DATA_CONVERTER)
        model = ScriptedModel(react)
        async with running_turns(client, store, QUEUE, catalog_of(tools(Ledger())), model, people=people()) as turns:
            keys = await _suspend(turns)
    return {name: key.workflow_id for name, key in keys.items()}


def keep(database: Path, path: Path) -> None:
    """Compresses a database, all of it in one file and as small as it gets."""
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    connection.close()
    path.write_bytes(gzip.compress(database.read_bytes(), mtime=0))


def main() -> int:
    """Records this version, or says what to run."""
    if socket.gethostname() != HOST:
        print(f"record: this machine's name would be in the recording, run it as {HOST}:\n{__doc__}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        turns, kept = asyncio.run(play(Path(folder))), HERE / VERSION
        kept.mkdir(exist_ok=True)
        for name in (SERVER, STORE):
            keep(Path(folder) / name, kept / f"{name}.gz")
    text = json.dumps({"version": VERSION, "engine": ENGINE, "turns": turns}, indent=1)
    (kept / TURNS).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
