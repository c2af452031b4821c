import asyncio
import html
import json
import os
import re
import signal
import ssl
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx2
from polling import pauses
from temporalio.client import Client

from signoff.contracts.ids import TurnKey
from signoff.store.store import open_store
from signoff.store.tokens import SCOPES, Tokens
from signoff.temporal.embedded_server import ServerHandle, free_port

MANIFEST: Final = Path(__file__).parent / "attack_project" / "signoff.yaml"
PEOPLE: Final = ("rui", "max", "ana", "bo", "cy", "zoe", "aud", "adm", "mal", "fay", "finn", "lea", "lia")
"""`rui` and `max` request, `ana`, `bo` and `cy` approve, `zoe` is a stranger, `aud` an auditor, `adm` an
administrator. `mal` decides escalated requests and the office's.
"""
START_SECONDS: Final = 90
WAIT_SECONDS: Final = 100
BINDINGS: Final = ("question_hash", "digest")
"""Fields that bind an answer to a view: the first one in the view is sent back."""

Call = tuple[str, dict[str, Any]]
PLAIN_HTTP: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts no authority: loading the trusted ones takes each client 20 ms, and all traffic here is plain HTTP."""


@dataclass(frozen=True)
class StoreUrls:
    """With database roles, each process has its own URL."""

    worker: str
    gateway: str


@dataclass(frozen=True)
class Shown:
    status: int
    words: str
    view: dict[str, Any] = field(default_factory=dict)


@dataclass
class AttackSite:
    """The directory holds the ledger, both processes' state and their logs."""

    folder: Path
    server: ServerHandle
    client: Client
    queue: str
    port: int
    stores: StoreUrls
    tokens: dict[str, str] = field(default_factory=dict)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    opened: list[httpx2.AsyncClient] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def env(self, process: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
        return plain | {
            "ATTACK_FOLDER": str(self.folder),
            "SIGNOFF_PROFILE": "production",
            # Attackers read histories: no test may depend on their encryption.
            "SIGNOFF_ENCRYPTION": "false",
            "SIGNOFF_MANIFEST": str(MANIFEST),
            "SIGNOFF_STATE_DIR": str(self.folder / process),
            "SIGNOFF_STORE_URL": self.stores.worker if process == "worker" else self.stores.gateway,
            "SIGNOFF_TASK_QUEUE": self.queue,
            "SIGNOFF_PORT": str(self.port),
            "TEMPORAL_ADDRESS": self.server.address,
            **self.settings,
        }

    async def run(self, process: str, *words: str) -> None:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "signoff.cli.main", *words),
            cwd=self.folder,
            env=self.env(process),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await ran.communicate()
        assert ran.returncode == 0, out.decode()

    async def start(self, process: str) -> None:
        log = self.folder / f"{process}-{uuid.uuid4().hex[:6]}.out"
        with log.open("wb") as out:
            started = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "signoff.cli.main", process, "--json"),
                cwd=self.folder,
                env=self.env(process),
                stdout=out,
                stderr=asyncio.subprocess.STDOUT,
            )
        self.processes[process] = started
        deadline = time.monotonic() + START_SECONDS
        while not log.read_text().startswith("{"):
            assert started.returncode is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            await asyncio.sleep(0.05)

    async def stop(self, process: str) -> None:
        ended = self.processes.pop(process, None)
        if ended is not None:
            with suppress(ProcessLookupError):
                ended.send_signal(signal.SIGKILL)
            await ended.wait()

    @asynccontextmanager
    async def without(self, process: str) -> AsyncIterator[None]:
        await self.stop(process)
        try:
            yield
        finally:
            await self.start(process)

    def person(self, name: str) -> "Caller":
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        return Caller(name, self._opened(headers))

    async def browser(self, name: str) -> "Browser":
        page = self._opened({"sec-fetch-site": "same-origin"})
        fields = form_fields((await page.get("/login")).text, "/login")
        answer = await page.post("/login", data={**fields, "secret": self.tokens[name]})
        assert answer.status_code == 303, answer.text
        return Browser(name, page)

    def _opened(self, headers: dict[str, str]) -> httpx2.AsyncClient:
        self.opened.append(httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60, verify=PLAIN_HTTP))
        return self.opened[-1]

    async def close(self) -> None:
        for each in self.opened:
            await each.aclose()
        self.opened.clear()

    def ledger(self, to: str) -> list[dict[str, Any]]:
        file = self.folder / "ledger"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in map(json.loads, lines) if line["to"] == to]

    def amounts(self, to: str) -> list[int]:
        return [line["amount"] for line in self.ledger(to)]


@dataclass
class Caller:
    name: str
    http: httpx2.AsyncClient

    async def ask(self, *rounds: list[Call], **fields: Any) -> TurnKey:
        answer = await self.http.post("/v1/turns", json={"text": json.dumps(rounds), "actor": "clerk", **fields})
        assert answer.status_code == 201, answer.text
        body = answer.json()
        return TurnKey(body["tenant"], body["session"], body["turn"])

    async def say(self, session: str, *rounds: list[Call], **fields: Any) -> httpx2.Response:
        body = {"text": json.dumps(rounds), "actor": "clerk", **fields}
        return await self.http.post(f"/v1/sessions/{session}/messages", json=body)

    async def turn(self, key: TurnKey) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/turns/{'.'.join(key)}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def result(self, key: TurnKey) -> dict[str, Any]:
        found: dict[str, Any] = await until(lambda: self._result(key))
        return found

    async def _result(self, key: TurnKey) -> Any:
        answer = await self.http.get(f"/v1/turns/{'.'.join(key)}")
        return answer.json().get("result") if answer.status_code == 200 else None

    async def see(self, approval: str) -> Shown:
        answer = await self.http.get(f"/v1/approvals/{approval}")
        return Shown(answer.status_code, answer.text, answer.json() if answer.status_code == 200 else {})

    async def waiting(self, approval: str) -> Shown:
        async def look() -> Shown | None:
            shown = await self.see(approval)
            return shown if shown.view.get("state") == "pending" else None

        return await until(look)

    async def decide(self, shown: Shown, verdict: str = "approved", **fields: Any) -> httpx2.Response:
        body = {"verdict": verdict, "revision": shown.view["revision"], **binding(shown.view), **fields}
        return await self.http.post(f"/v1/approvals/{shown.view['id']}/decide", json=body)

    async def approve(self, approval: str, **fields: Any) -> dict[str, Any]:
        return receipt(await self.decide(await self.waiting(approval), **fields))

    async def record(self, key: TurnKey) -> list[dict[str, Any]]:
        answer = await self.http.get(f"/v1/audit/{'.'.join(key)}")
        assert answer.status_code == 200, answer.text
        return [{**each, "data": json.loads(each["data"])} for each in answer.json()["records"]]


@dataclass
class Browser:
    name: str
    http: httpx2.AsyncClient

    async def open(self, approval: str) -> tuple[Shown, dict[str, str]]:
        """The form's fields are empty without a form."""
        answer = await self.http.get(f"/approvals/{approval}")
        action = f"/approvals/{approval}/decide"
        fields = form_fields(answer.text, action) if f'action="{action}"' in answer.text else {}
        return Shown(answer.status_code, words(answer.text)), fields

    async def send(self, approval: str, fields: dict[str, str], verdict: str = "approved") -> httpx2.Response:
        return await self.http.post(f"/approvals/{approval}/decide", data={**fields, "verdict": verdict})


def binding(view: dict[str, Any]) -> dict[str, Any]:
    return next(({name: view[name]} for name in BINDINGS if view.get(name)), {})


def is_turns_word(record: dict[str, Any]) -> bool:
    return "turn" in (record.get("by"), record["data"].get("by"))


def receipt(answer: httpx2.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert "status" in body, answer.text
    return body


def approval_id(key: TurnKey, call: str = "c1.1") -> str:
    return ".".join((*key, call))


def form_fields(page: str, action: str) -> dict[str, str]:
    form = page[page.index(f'action="{action}"') :]
    found = re.findall(r'type="hidden" name="([\w-]+)" value="([^"]*)"', form[: form.index("</form>")])
    return {name: html.unescape(value) for name, value in found}


def words(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def payee() -> str:
    return f"Nordwind {uuid.uuid4().hex[:8]}"


async def until(look: Callable[[], Awaitable[Any]], seconds: float = WAIT_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    waits = pauses()
    while True:
        found = await look()
        if found:
            return found
        assert time.monotonic() < deadline, f"nothing came in {seconds} s"
        await asyncio.sleep(next(waits))


async def passed(moment: datetime) -> None:
    async def over() -> bool:
        return datetime.now(UTC) > moment

    await until(over)


@asynccontextmanager
async def running_site(
    folder: Path, server: ServerHandle, stores: StoreUrls | None = None, **settings: str
) -> AsyncIterator[AttackSite]:
    both = f"sqlite:///{folder}/signoff.db"
    queue = f"attacked-{uuid.uuid4().hex[:8]}"
    site = AttackSite(folder, server, await server.connect(), queue, free_port(), stores or StoreUrls(both, both))
    site.settings.update(settings)
    (folder / "worker").mkdir()
    await site.run("gateway", "keys", "create")
    await site.run("gateway", "keys", "export", "--out", str(folder / "worker" / "public-keys.json"))
    async with open_store(site.stores.gateway) as store:
        for name in PEOPLE:
            secret, _ = await Tokens(store).create(
                "main", name, SCOPES, lifetime=timedelta(days=1), now=datetime.now(UTC)
            )
            site.tokens[name] = secret
    try:
        await asyncio.gather(site.start("worker"), site.start("gateway"))
        yield site
    finally:
        await site.close()
        await site.stop("gateway")
        await site.stop("worker")
