"""One installation serves all tests: the agent finds each call again by its key, no call runs twice, and no
acknowledged answer is lost.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from killable_stack import killable, lines, make_keys, seen, store_url
from killed_requests import KilledRequests

from signoff.audit.checkpoints import Checkpoints
from signoff.audit.log import AuditLog
from signoff.audit.verifier import verify
from signoff.keys.key_files import FileVerifier
from signoff.store.store import Store, open_store
from signoff.store.tokens import SCOPES, Tokens
from signoff.temporal.embedded_server import ServerHandle, free_port

_PAUSE = 0.1
_ROLES = ("worker", "gateway")
IN_FLIGHT = 4
pytestmark = pytest.mark.timeout(300)


@dataclass
class Installation:
    address: str
    folder: Path
    store: Store
    tokens: dict[str, str]
    running: contextlib.AsyncExitStack
    queue: str = field(default_factory=lambda: f"killed-{uuid.uuid4().hex[:8]}")
    port: int = field(default_factory=free_port)
    processes: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)
    """Ticket keys of the agent's runs, one entry per run."""

    async def begin(self, role: str) -> None:
        process = killable(role, self.address, self.folder, self.queue, self.port)
        self.processes[role] = await self.running.enter_async_context(process)

    async def kill(self) -> None:
        for role in _ROLES:
            self.processes[role].kill()
        await asyncio.gather(*(self.processes[role].wait() for role in _ROLES))
        await asyncio.gather(*map(self.begin, _ROLES))

    async def send(self, method: str, path: str, who: str = "coder", key: str = "", **body: Any) -> httpx2.Response:
        """Send one request of a new process, which knows only the keys of its calls."""
        headers = {"authorization": f"Bearer {self.tokens[who]}", **({"idempotency-key": key} if key else {})}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60, headers=headers) as http:
            return await http.request(method, path, json=body if method == "POST" else None)

    async def propose(self, key: str, euro: float = 20, **fields: Any) -> dict[str, Any]:
        body = {"tool": "refund", "args": {"order": "A7", "euro": euro}} | fields
        answer = await self.insist("/v1/calls", key=key, **body)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def insist(self, path: str, who: str = "coder", key: str = "", **body: Any) -> httpx2.Response:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                answer = await self.send("POST", path, who, key, **body)
                if answer.status_code < 500:
                    return answer
            await asyncio.sleep(_PAUSE)

    async def until(self, key: str, *states: str, **fields: Any) -> dict[str, Any]:
        while (found := await self.propose(key, **fields))["state"] not in states:
            await asyncio.sleep(_PAUSE)
        return found

    async def approve(self, call: str, **fields: Any) -> None:
        approval = f"{call}.c1.1"
        shown = (await self.send("GET", f"/v1/approvals/{approval}", "ana")).json()
        about = {name: shown[name] for name in ("revision", "question_hash")}
        sent = {"verdict": "approved"} | about | fields
        answer = await self.insist(f"/v1/approvals/{approval}/decide", "ana", uuid.uuid4().hex, **sent)
        assert answer.json()["status"] in ("accepted", "pending"), answer.text

    async def approve_order(self, order: str) -> None:
        listed = (await self.send("GET", "/v1/approvals", "ana")).json()["approvals"]
        [asked] = [each["id"] for each in listed if order in each["effect"]]
        await self.approve(asked.removesuffix(".c1.1"))

    async def use(self, call: str) -> dict[str, Any]:
        answer = await self.insist(f"/v1/calls/{call}/use", key=uuid.uuid4().hex)
        assert answer.status_code == 200, answer.text
        permit: dict[str, Any] = answer.json()
        self.effects.append(permit["key"])
        return permit

    async def report(self, call: str) -> dict[str, Any]:
        answer = await self.insist(f"/v1/calls/{call}/outcome", code="ok", result="refunded")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def killed_agent(self, key: str) -> str:
        body = {"tool": "refund", "args": {"order": "A7", "euro": 200}, "wait": 50, "use": True}
        headers = {"content-type": "application/json", "idempotency-key": key}
        headers["authorization"] = f"Bearer {self.tokens['coder']}"
        sent = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
        url = f"http://127.0.0.1:{self.port}/v1/calls"
        agent = await asyncio.create_subprocess_exec("curl", "-s", url, *sent, "-d", json.dumps(body))
        # A second connection of the agent sees that the call waits. Then kill the connection that holds the request.
        found = await self.until(key, "waiting", euro=200)
        while "code" not in found:
            found = await self.until(key, "waiting", euro=200)
        agent.kill()
        await agent.wait()
        return str(found["id"])


@contextlib.asynccontextmanager
async def installation(address: str, folder: Path) -> AsyncIterator[Installation]:
    make_keys(folder)
    async with open_store(store_url(folder)) as store, contextlib.AsyncExitStack() as running:
        tokens, hour, now = {}, timedelta(hours=1), datetime.now(UTC)
        tokens["ana"], _ = await Tokens(store).create("main", "ana", SCOPES, lifetime=hour, now=now)
        tokens["coder"], _ = await Tokens(store).create("main", "actor:coder", ("call",), lifetime=hour, now=now)
        found = Installation(address, folder, store, tokens, running)
        await asyncio.gather(*map(found.begin, _ROLES))
        yield found


@pytest.mark.usefixtures("encryption")
async def test_external_calls_survive_kills_at_every_step(server: ServerHandle, tmp_path: Path) -> None:
    async with installation(server.address, tmp_path) as found:
        waiting = await found.killed_agent("waiting")
        permitted = (await found.propose("permitted"))["id"]
        lost = await found.propose("lost", use="first-process")
        unreported = (await found.propose("unreported"))["id"]
        await found.use(unreported)
        reported = (await found.propose("reported"))["id"]
        await found.use(reported)
        await found.report(reported)
        asked = await found.until("inside", "waiting", tool="inside", args={"amount": 1})
        while "code" not in asked:
            asked = await found.until("inside", "waiting", tool="inside", args={"amount": 1})
        await found.approve(asked["id"])
        await seen(tmp_path / "inside")
        requests = KilledRequests(f"http://127.0.0.1:{found.port}/aap/coder", found.tokens["coder"])
        await requests.begin()
        on_its_way = [
            asyncio.create_task(found.propose(f"way-{number}", use=f"process-{number}")) for number in range(IN_FLIGHT)
        ]
        await found.kill()
        (tmp_path / "go").touch()

        # The agent returns with its keys only.
        again = await found.until("waiting", "waiting", euro=200)
        assert again["id"] == waiting
        await found.approve(waiting)
        assert (await found.until("waiting", "permitted", euro=200))["id"] == waiting
        assert (await found.use(waiting))["args"] == {"order": "A7", "euro": 200}
        assert (await found.report(waiting))["decided_by"] == "Ana"

        assert (await found.until("permitted", "permitted"))["id"] == permitted
        await found.use(permitted)
        await found.report(permitted)

        # Its answer may have been lost: the same use gets the same permit, another one none.
        assert "args" not in await found.until("lost", "used", use=True)
        assert "args" not in await found.until("lost", "used", use="second-process")
        handed = await found.until("lost", "used", use="first-process")
        assert (handed["id"], handed["args"], handed["key"]) == (lost["id"], lost["args"], lost["key"])
        found.effects.append(handed["key"])
        await found.report(lost["id"])

        assert "args" not in await found.until("unreported", "used", use=True)
        assert (await found.report(unreported))["code"] == "ok"
        assert (await found.until("reported", "ended"))["result"] == "refunded"

        # Killed before or after it was started, judged or used: its use gets its one permit.
        await asyncio.gather(*on_its_way)
        for number in range(IN_FLIGHT):
            used = await found.until(f"way-{number}", "used", use=f"process-{number}")
            while "args" not in used:
                used = await found.until(f"way-{number}", "used", use=f"process-{number}")
            found.effects.append(used["key"])
            await found.report(used["id"])

        # An adapter of the Agent Approval Protocol returns in the same way.
        await requests.finish(found.approve_order)

        # Signoff does not start its own run again. test_kills.py waits for the question about its outcome.
        inside = await found.until("inside", "running", "waiting", tool="inside", args={"amount": 1})
        assert inside["id"] == asked["id"]
        assert lines(tmp_path) == ["inside"]

        assert len(found.effects) == len(set(found.effects)) == 5 + IN_FLIGHT
        points = Checkpoints(found.store)
        verifier = FileVerifier(tmp_path / "public.json")
        report = await verify(AuditLog(found.store).records(), points.all(), verifier, heads=await points.heads())
        assert report.finding is None
        for call in (waiting, permitted, lost["id"], unreported, reported, asked["id"]):
            kinds = [each.kind for each in await AuditLog(found.store).stream(f"turn/{call.replace('.', '/')}")]
            assert kinds.count("execution") == 1, (call, kinds)
