"""Records an installation, its store and its server's database, for tests of later versions.

It contains waiting turns and each scenario of the recorded histories of calls, sessions, tasks and handlers. The
gateway signs with a key made for the recording. The databases are copied while all of this runs, as after a crash.

Run it by hand once for each release, at the version to be released. Until 0.1.0 is released, run it whenever a shape
changes:

    PYTHONPATH=tests unshare --uts --map-root-user \\
        sh -c 'hostname recorder; .venv/bin/python tests/installations/record.py'

Workers and the server record the machine's name, so the program runs only under the name `recorder`. It writes
`tests/installations/<version>/`. Never change the recording of a released version: such installations exist.
"""

import asyncio
import dataclasses
import gzip
import json
import socket
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from call_rig import CallRig, call_rig
from gateway_rig import PEOPLE
from histories.call_scenarios import CALLS, YEARS, catalog, turn_of
from histories.kind_scenarios import HANDLERS, SESSIONS, TASKS, call_task, feeds, started, task_tool
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http
from session_rig import message, talk
from temporalio.api.failure.v1 import Failure
from temporalio.client import Client
from temporalio.converter import DefaultFailureConverter, PayloadConverter
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, catalog_of, pay_tool, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.names import ENGINE, VERSION
from signoff.contracts.turn import TurnView
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.registry.catalog import Catalog
from signoff.registry.manifest.subscription_sections import EventHandler
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store, open_store
from signoff.store.tickets import ticket_key
from signoff.temporal.converter import DATA_CONVERTER
from signoff.temporal.embedded_server import ServerOptions, free_port, run_server
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

HERE = Path(__file__).parent
QUEUE = "recorded"
HOST = "recorder"
SERVER, STORE, TURNS, KEYS = "temporal.db", "signoff.db", "turns.json", "signing_keys.json"
_RETENTION_DAYS = int(YEARS / 86_400)
"""The server must keep ended workflows for later versions."""
_IN_FORCE_SECONDS = 15
"""How long the server may cache its earlier retention. It deletes workflows by the retention at their end."""
# A policy's timeout is at most a year. `replace` skips this check.
_LONG = replace(ApprovalPolicy(), timeout=YEARS)
_TWICE = replace(ApprovalPolicy(quorum=2), timeout=YEARS)
_NAMES = ("pay", "edit", "gone", "lost", "twice")
_HOLD = "hold"
SESSION = "talk"
"""The session with a waiting turn."""
WORDS = {
    "approved": "pay", "denied": "pay", "withdrawn": "pay", "removed": "gone", "changed": "edit",
    "voted": "twice", "both": "pay pay", "doubted": "lost",
}  # fmt: skip
"""Maps each waiting turn outside the session to the tools that it calls."""
KINDS = {*CALLS, *(each.__name__ for each in (*SESSIONS, *TASKS, *HANDLERS)), "tool_running"}
"""The recorded scenarios other than the waiting turns."""


def tools(ledger: Ledger) -> list[Tool]:
    policies = {name: _TWICE if name == "twice" else _LONG for name in _NAMES}
    held = pay_tool(ledger, False, name=_HOLD, effect="", handler=_wait)
    return [held, *(pay_tool(ledger, policy, name=name) for name, policy in policies.items())]


async def _wait(args: dict[str, Any], ctx: ToolContext) -> None:
    await asyncio.Event().wait()


def react(request: CompletionRequest) -> Completion:
    words = last_user_text(request)
    if words.startswith("task "):
        return call_task(request)
    named = [word for word in words.split() if word in (*_NAMES, _HOLD)]
    if results(request) or not named:
        return respond("done")
    return calls(*((name, {"amount": 20, "to": "Ana"}) for name in named))


class _Traceless(DefaultFailureConverter):
    """Omits stack traces, which contain paths of the machine."""

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        super().to_failure(exception, payload_converter, failure)
        failure.stack_trace = ""


@asynccontextmanager
async def installation(
    client: Client,
    store: Store,
    keys: PrivateKeys,
    folder: Path,
    own_tools: Callable[[Ledger], list[Tool]] = tools,
    handlers: Mapping[str, EventHandler] = MappingProxyType({}),
) -> AsyncIterator[tuple[CallRig, Upstream]]:
    upstream = Upstream(folder)
    async with by_http(upstream) as server:

        def everything(ledger: Ledger) -> Catalog:
            given = catalog(ledger)
            every = {tool.name: tool for tool in (*given.tools(), *own_tools(ledger), task_tool(server))}
            return catalog_of(
                [dataclasses.replace(tool, site=HOST) for tool in every.values()],
                actors=[*given.actors.values()],
                people=PEOPLE,
                mcp_servers=[server],
                subscriptions=feeds(**handlers),
            )

        more = {"catalog_of_ledger": everything, "model": ScriptedModel(react), "signer": Signer(keys)}
        async with call_rig(client, store, QUEUE, **more) as agent:
            yield agent, upstream


async def _play(agent: CallRig, upstream: Upstream) -> dict[str, dict[str, str]]:
    """Handlers come first because their scenarios freeze the tenant. Tasks of servers come last because the running
    task has little time. Running workflows continue until the databases are copied.
    """
    turns = agent.rig.turns
    kinds = {each.__name__: (await each(agent.rig)).workflow_id for each in HANDLERS}
    kinds |= {name: turn_of(await each(agent)).workflow_id for name, each in CALLS.items()}
    kinds |= {each.__name__: (await each(talk(turns))).workflow_id for each in SESSIONS}
    waiting = {name: key.workflow_id for name, key in (await _suspend(turns)).items()}
    kinds["tool_running"] = (await turns.start(_HOLD)).workflow_id
    await started(turns.client, kinds["tool_running"])
    kinds |= {each.__name__: (await each(turns, upstream)).workflow_id for each in TASKS}
    return {"turns": waiting, "kinds": kinds}


async def _suspend(turns: RunningTurns) -> dict[str, TurnKey]:
    keys = {name: await turns.start(words) for name, words in WORDS.items()}
    for name, key in keys.items():
        await turns.waiting(key, 2 if name == "both" else 1)
    await turns.signoff.decide(yes(keys["voted"], subject="ana"))
    # The state after a worker is lost in the middle of the side effect.
    request = (await turns.waiting(keys["doubted"])).calls[0].approval
    if request is not None:
        ticket = ticket_key(request.digest, 1)
        await turns.store.claim(ticket, workflow=keys["doubted"].workflow_id, call="c1.1", tool="lost")
    await turns.signoff.decide(yes(keys["doubted"]))
    await turns.until(keys["doubted"], lambda view: revision(view) == 2)
    session = SessionKey("main", SESSION)
    await turns.sessions.say(session, message("pay", "first"), actor="desk")
    keys["session"] = TurnKey("main", SESSION, "first")
    await turns.waiting(keys["session"])
    for key in keys.values():
        await turns.suspended(key)
    return keys


def revision(view: TurnView) -> int:
    request = view.calls[0].approval
    return request.revision if request is not None and request.state == "pending" else 0


async def play(folder: Path, keys: PrivateKeys) -> dict[str, dict[str, str]]:
    options = ServerOptions(folder / SERVER, port=free_port(), ui_port=None, retention_days=_RETENTION_DAYS)
    async with run_server(options) as server, open_store(f"sqlite:///{folder / STORE}") as store:
        converter = dataclasses.replace(DATA_CONVERTER, failure_converter_class=_Traceless)
        client = await Client.connect(server.address, identity="recorder", data_converter=converter)
        async with installation(client, store, keys, folder) as (agent, upstream):
            await asyncio.sleep(_IN_FORCE_SECONDS)
            played = await _play(agent, upstream)
            for name in (SERVER, STORE):
                keep(folder / name, HERE / VERSION / f"{name}.gz")
    return played


def keep(database: Path, path: Path) -> None:
    copy = database.with_suffix(".copy")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")
        target.execute("VACUUM")
    path.write_bytes(gzip.compress(copy.read_bytes(), mtime=0))


def main() -> int:
    if socket.gethostname() != HOST:
        print(f"record: this machine's name would be in the recording, run it as {HOST}:\n{__doc__}", file=sys.stderr)
        return 1
    kept, keys = HERE / VERSION, PrivateKeys(keys=(new_key(datetime.now(UTC)),))
    kept.mkdir(exist_ok=True)
    (kept / KEYS).write_text(keys.model_dump_json(indent=1) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        played = asyncio.run(play(Path(folder), keys))
    text = json.dumps({"version": VERSION, "engine": ENGINE, **played}, indent=1)
    (kept / TURNS).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
