"""A week of traffic: `python -m tools.bench.scale.week [--turns-a-day N] [--days N] [--store URL] [--json FILE]`.

A worker and a gateway run in this process over one store and the embedded server, as in `signoff dev`. Each day the
command plays the turns over HTTP, and then a day passes. No clock moves. Instead, the store's rows move back by 24
hours, and workflows as old as Temporal's retention are deleted by the call that the retention uses. Hashes bind the
audit log to its times, so it is retired by the real ends of the days.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
from sqlalchemy import BigInteger, Connection, Table, func, select, text, update
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus

from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.event_stream import EventStream
from signoff.cli.local.gateway import running_gateway
from signoff.cli.local.installation import find_installation
from signoff.cli.local.worker import running_worker
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.frozen_model import FrozenModel
from signoff.engine.store_cleanup import read_status
from signoff.engine.turn_client import TurnClient
from signoff.store.completions import Completions
from signoff.store.store import Store, open_store
from signoff.store.tables import METADATA
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server
from signoff.temporal.server_connection import LOOPBACK
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

DAYS: Final = 7
RETENTION_DAYS: Final = 2
"""The number of days that Temporal, the store and the audit log keep ended turns."""
TOLERANCE: Final = 0.1
"""The allowed growth of a figure from day 4 to day 7. A figure that grows every day grows by a quarter per day."""
AT_ONCE: Final = 8
DAY_MILLISECONDS: Final = 86_400_000
SECRET: Final = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
LONG: Final = "x" * 9_000
"""Makes a message too long for a history, so that it is stored."""
KEPT_FOR_GOOD: Final = ("audit_records", "audit_heads", "audit_checkpoints")
"""Tables of the audit log, which keeps something of every turn."""
KINDS: Final = ("auto", "auto", "auto", "approved", "approved", "denied", "edited", "late", "session", "session")
"""The courses of ten consecutive turns."""

MANIFEST: Final = """
version: 1
defaults: {{model: "scripted:tools.bench.scale.week:MODEL"}}
channels:
  feed:
    kind: webhook
    url: "http://127.0.0.1:{port}/cards"
    secret: "env:WEEK_SECRET"
    allow_networks: [127.0.0.0/8]
routing: {{default: [feed]}}
subscriptions:
  everything:
    events: ["approval.*", "tool_call.*"]
    url: http://127.0.0.1:{port}/events
    secret: env:WEEK_SECRET
    allow_networks: [127.0.0.0/8]
people:
  - {{id: ana, name: Ana, roles: [payers], identities: {{webhook: [ana]}}}}
  - {{id: rui, name: Rui}}
actors:
  clerk: {{instructions: Pay and hurry.}}
tools:
  pay:
    handler: tools.bench.scale.week:pay
    scope: generalist
    effect: "Pay {{amount}} EUR to {{to}}"
    requires_approval: {{auto_approve_if: "args.amount < 10", edit: approve, approvers: [role:payers]}}
  hurry:
    handler: tools.bench.scale.week:hurry
    scope: generalist
    effect: "Hurry, because {{reason}}"
    requires_approval: {{timeout: 2s, approvers: [role:payers]}}
"""


async def pay(amount: int, to: str) -> str:
    """Pay somebody.

    Args:
        amount: How much, in EUR.
        to: Whom.
    """
    return f"paid {amount} to {to}"


async def hurry(reason: str) -> str:
    """Do something that cannot wait.

    Args:
        reason: Why.
    """
    return f"hurried: {reason}"


def _complete(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    kind = last_user_text(request).partition(" ")[0]
    if kind == "hurry":
        return calls(("hurry", {"reason": "now"}))
    return calls(("pay", {"amount": int(kind), "to": "Ana"}))


MODEL: Final = ScriptedModel(_complete)


class DayReport(FrozenModel):
    """The figures at a day's end, after all removals."""

    day: int
    """The number of the day, from 1."""
    seconds: float
    """The seconds of its traffic."""
    resident_kb: int
    """Resident memory of the process of worker and gateway."""
    files: int
    """Its open files and sockets."""
    threads: int
    """Its Python threads."""
    tasks: int
    """The tasks of its event loop."""
    rows: dict[str, int]
    """Rows by table."""
    store_kb: int
    """The size of the store: of SQLite's file, or of PostgreSQL's database."""
    temporal_kb: int
    """The size of the files of Temporal's database."""
    executions: int
    """The number of workflows in Temporal."""
    delivered: int
    """Cards and events delivered on that day."""


class WeekReport(FrozenModel):
    """A week and its growth."""

    cpus: int
    database: str
    """`sqlite` or `postgresql`."""
    turns_a_day: int
    """Turns per day."""
    retention_days: int
    days: tuple[DayReport, ...]
    grown: tuple[str, ...]
    """Figures that grew by more than the tolerance between the first day after removals and the last."""


class WeekFailed(Exception):
    """A turn did not end as planned, or a command failed."""


class _Subscriber:
    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._take, LOOPBACK, port):
            yield

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = next(
                (line.split(":")[1] for line in head.split("\r\n") if line.startswith("content-length:")), "0"
            )
            await reader.readexactly(int(length))
            self.count += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        finally:
            writer.close()


class Week:
    """One installation, and the turns of each of its days."""

    def __init__(self, folder: Path, server: ServerHandle, client: Client, store: Store, turns_a_day: int) -> None:
        self._folder = folder
        self._server = server
        self._client = client
        self._store = store
        self._turns = turns_a_day
        self._names: list[list[str]] = []
        self._ends: list[datetime] = []
        self._process = psutil.Process()

    async def play_day(self, http: httpx2.AsyncClient, subscriber: _Subscriber) -> DayReport:
        """Let the day pass, remove old data, and count the rest."""
        day, began, before = len(self._names) + 1, time.perf_counter(), subscriber.count
        self._names.append([])
        left = iter([(number, KINDS[number % len(KINDS)]) for number in range(self._turns)])

        async def work() -> None:
            for number, kind in left:
                await self._play(http, day, number, kind)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())
        await self._until_delivered()
        seconds = time.perf_counter() - began
        self._ends.append(datetime.now(UTC))
        await self._store.run(_pass_a_day)
        await self._maintain(day)
        gc.collect()
        return await self._report(day, seconds, subscriber.count - before)

    async def _play(self, http: httpx2.AsyncClient, day: int, number: int, kind: str) -> None:
        if kind == "session":
            await self._say(http, f"d{day}-{number // len(KINDS)}", f"5 {day}.{number} {LONG}")
            return
        asked = {"auto": f"5 {number} {LONG}", "late": "hurry"}.get(kind, f"50 {number}")
        answer = await _post(http, "/v1/turns", {"user": "rui", "text": asked})
        workflow = f"turn/main/{answer['session']}/{answer['turn']}"
        self._names[-1].append(workflow)
        if kind in ("approved", "denied", "edited"):
            approval = f"main.{answer['session']}.{answer['turn']}.c1.1"
            shown = await _until(lambda: _get(http, f"/v1/approvals/{approval}"))
            body: dict[str, Any] = {"verdict": "denied" if kind == "denied" else "approved", "reason": "as every day"}
            if kind == "edited":
                body["edited_args"] = {"amount": 40, "to": "Ana"}
            body |= {"question_hash": shown["question_hash"]} if "question_hash" in shown else {}
            await _post(http, f"/v1/approvals/{approval}/decide?as=ana", body)
        code = {"denied": "denied", "late": "denied"}.get(kind, "ok")
        view = await _until(lambda: self._ended(http, answer))
        codes = [each["outcome"]["code"] for each in view["calls"] if each["outcome"]]
        if codes != [code]:
            raise WeekFailed(f"a turn that was to be {kind} came to {codes}")

    async def _ended(self, http: httpx2.AsyncClient, answer: dict[str, Any]) -> dict[str, Any] | None:
        view = await _get(http, f"/v1/turns/main.{answer['session']}.{answer['turn']}")
        return view if view is not None and view["state"] == "complete" else None

    async def _say(self, http: httpx2.AsyncClient, session: str, words: str) -> None:
        said = await _post(http, f"/v1/sessions/{session}/messages", {"user": "rui", "text": words})
        name = f"session/main/{session}"
        if name not in self._names[-1]:
            self._names[-1].append(name)

        async def answered() -> bool | None:
            view = await _get(http, f"/v1/sessions/{session}")
            over = view is not None and not view["queued"] and all(each["state"] != "working" for each in view["turns"])
            return True if over else None

        if not said:
            raise WeekFailed(f"no turn ended for a message to {session}")
        await _until(answered)

    async def _until_delivered(self) -> None:
        owed = (
            METADATA.tables["event_deliveries"].c.state == "new",
            METADATA.tables["deliveries"].c.state == "planned",
        )

        async def none() -> bool | None:
            left = [await self._store.run(partial(_count, table=which.left.table, which=(which,))) for which in owed]
            return None if any(left) else True

        await _until(none)

    async def _maintain(self, day: int) -> None:
        old = day - RETENTION_DAYS
        if old >= 1:
            await self._forget(self._names[old - 1])
        limit = datetime.now(UTC) - timedelta(days=RETENTION_DAYS)
        await self._command("store", "clean", "--before", limit.isoformat())
        # Removals that workers and gateways make every hour; a day takes minutes here.
        await Completions(self._store).drop_old()
        await EventStream(self._store, lambda tool: False).remove_old(RETENTION_DAYS)
        await EventDeliveries(self._store).remove_old(RETENTION_DAYS)
        if old >= 1:
            await self._command("audit", "retire", "--before", self._ends[old - 1].isoformat())

    async def _forget(self, names: Sequence[str]) -> None:
        """End conversations as an operator does, and delete them and all turns as the retention does."""
        found = [name for name in names if not name.startswith("session/")]
        for session in (name for name in names if name.startswith("session/")):
            await self._client.get_workflow_handle(session).terminate("no message for days")
            prefix = session.replace("session/", "turn/", 1)
            found += [each.id async for each in self._client.list_workflows(f'WorkflowId STARTS_WITH "{prefix}/"')]
            found.append(session)
        await asyncio.gather(*map(self._delete, found))

    async def _delete(self, name: str) -> None:
        if await read_status(self._client, name) == WorkflowExecutionStatus.RUNNING:
            raise WeekFailed(f"`{name}` still runs")
        execution = WorkflowExecution(workflow_id=name)
        request = DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
        await self._client.workflow_service.delete_workflow_execution(request, retry=True)

        async def gone() -> bool | None:
            return True if await read_status(self._client, name) is None else None

        await _until(gone)

    async def _command(self, *words: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "signoff.cli.main", *words, cwd=self._folder,
            env=os.environ | {"PYTHONPATH": os.getcwd()},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        if process.returncode:
            raise WeekFailed(f"`signoff {' '.join(words)}` said: {(err or out).decode().strip()}")

    async def _report(self, day: int, seconds: float, delivered: int) -> DayReport:
        rows = {table.name: await self._store.run(partial(_count, table=table)) for table in METADATA.sorted_tables}
        return DayReport(
            day=day,
            seconds=round(seconds, 1),
            resident_kb=self._process.memory_info().rss // 1024,
            files=self._process.num_fds(),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            rows=rows,
            store_kb=await self._store.run(_size) // 1024,
            temporal_kb=sum(file.stat().st_size for file in self._folder.glob("temporal.db*")) // 1024,
            executions=(await self._client.count_workflows("")).count,
            delivered=delivered,
        )


def grown(days: Sequence[DayReport]) -> tuple[str, ...]:
    """Compare days since removals began. Leave out the audit log's figures."""
    first, last = days[min(RETENTION_DAYS + 1, len(days) - 2)], days[-1]
    found = []
    # The thread pools of the SDK and the web server start a thread if none is idle, up to the highest concurrency so
    # far.
    if last.threads > first.threads + AT_ONCE:
        found.append(f"threads: {first.threads} to {last.threads}")
    for name in ("resident_kb", "files", "tasks", "store_kb", "temporal_kb", "executions"):
        was, now = getattr(first, name), getattr(last, name)
        if now > was * (1 + TOLERANCE):
            found.append(f"{name}: {was} to {now}")
    for table, now in last.rows.items():
        was = first.rows[table]
        # A few rows more or less are chance: a lease, an event that just got its number.
        if table not in KEPT_FOR_GOOD and now > was * (1 + TOLERANCE) + 5:
            found.append(f"{table}: {was} to {now}")
    return tuple(found)


def _count(connection: Connection, table: Table, which: Sequence[Any] = ()) -> int:
    return connection.scalar(select(func.count()).select_from(table).where(*which)) or 0


def _size(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
    return int(pages) * int(connection.exec_driver_sql("PRAGMA page_size").scalar() or 0)


def _pass_a_day(connection: Connection) -> None:
    for table in METADATA.sorted_tables:
        if table.name in KEPT_FOR_GOOD:
            continue
        times = [
            each
            for each in table.columns
            if each.computed is None and isinstance(each.type, BigInteger) and _is_time(each.name)
        ]
        if times:
            connection.execute(update(table).values({each.name: each - DAY_MILLISECONDS for each in times}))


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in ("until", "at")


async def _post(http: httpx2.AsyncClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await http.post(path, json=body)
    if answer.status_code >= 300:
        raise WeekFailed(f"{path} answered {answer.status_code}: {answer.text[:300]}")
    found: dict[str, Any] = answer.json()
    return found


async def _get(http: httpx2.AsyncClient, path: str) -> dict[str, Any] | None:
    answer = await http.get(path)
    return answer.json() if answer.status_code == 200 else None


async def _until(look: Any) -> Any:
    deadline = time.monotonic() + 120
    while (found := await look()) is None:
        if time.monotonic() > deadline:
            raise WeekFailed("no result within two minutes")
        await asyncio.sleep(0.1)
    return found


async def play_week(turns_a_day: int, days: int = DAYS, store_url: str = "") -> WeekReport:
    """Use a new SQLite store by default, or the empty store at `store_url`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="signoff-week-")))
        options = ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None, retention_days=RETENTION_DAYS)
        server = await stack.enter_async_context(run_server(options))
        subscriber, port = _Subscriber(), free_port()
        await stack.enter_async_context(subscriber.serve(port))
        (folder / "signoff.yaml").write_text(MANIFEST.format(port=port), encoding="utf-8")
        os.environ |= {
            "SIGNOFF_MANIFEST": str(folder / "signoff.yaml"),
            "SIGNOFF_STATE_DIR": str(folder),
            "SIGNOFF_STORE_URL": store_url or f"sqlite:///{folder}/signoff.db",
            "SIGNOFF_PORT": str(free_port()),
            "SIGNOFF_EVENT_DAYS": str(RETENTION_DAYS),
            "TEMPORAL_ADDRESS": server.address,
            "WEEK_SECRET": SECRET,
        }
        place = find_installation()
        client = await server.connect()
        store = await stack.enter_async_context(open_store(place.settings.store_url))
        week = Week(folder, server, client, store, turns_a_day)
        await week._command("keys", "create")
        signoff = TurnClient(client, task_queue=place.task_queue)
        await stack.enter_async_context(running_gateway(place, signoff, store))
        await stack.enter_async_context(running_worker(place, client, store, task_queue=place.task_queue))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=place.settings.public_url, timeout=60))
        reports = []
        for _ in range(days):
            reports.append(await week.play_day(http, subscriber))
            print(_line(reports[-1]), flush=True)
        return WeekReport(
            cpus=os.cpu_count() or 0,
            database=store.dialect,
            turns_a_day=turns_a_day,
            retention_days=RETENTION_DAYS,
            days=tuple(reports),
            grown=grown(reports),
        )


def _line(day: DayReport) -> str:
    kept = {name: count for name, count in day.rows.items() if count}
    return f"day {day.day}: {day.model_dump(exclude={'rows', 'day'})} rows {kept}"


def main() -> None:
    """Exit code 1 means that something grew."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.scale.week", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--turns-a-day", type=int, default=200, help="turns played each day (200)")
    parser.add_argument("--days", type=int, default=DAYS, help=f"days ({DAYS})")
    parser.add_argument("--store", default="", metavar="URL", help="an empty store; a new SQLite file when left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there as JSON")
    given = parser.parse_args()
    report = asyncio.run(play_week(given.turns_a_day, given.days, given.store))
    print("nothing grew" if not report.grown else "\n".join(("grown:", *report.grown)))
    if given.json is not None:
        given.json.write_text(json.dumps(report.model_dump(), indent=2) + "\n", encoding="utf-8")
    sys.exit(1 if report.grown else 0)


if __name__ == "__main__":
    main()
