"""Its client checks each answer against the protocol's schemas."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from aap_schemas import answer_problems
from agentapprovalprotocol import AsyncClient, AsyncGate, Request
from call_rig import CallRig, call_token
from gateway_login import bearer
from gateway_rig import BASE
from polling import pauses

from signoff.contracts.ids import parse_approval_id


@dataclass
class Adapter:
    agent: CallRig
    http: httpx2.AsyncClient
    token: str
    base: str

    @property
    def client(self) -> AsyncClient:
        return AsyncClient(f"{BASE}{self.base}", self.token, http=self.http)

    def gate(self, **options: Any) -> AsyncGate:
        return AsyncGate(self.client, **options)

    async def ask(self, body: dict[str, Any], key: str = "") -> Request:
        return await self.client.create(body, key or uuid.uuid4().hex)

    async def allowed(self, **fields: Any) -> Request:
        return await self.until_settled(await self.ask(asking(20, **fields)))

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Send a request that the client would not send. Return the status and the refusal's code."""
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {} if body is None else {"json": body}
        if body is None and path.endswith("/outcome"):
            sent = {"json": {}}
        url = f"{BASE}{self.base}/v1/requests{path}"
        answer = await self.http.request(method, url, headers=bearer(self.token) | own, **sent)
        return answer.status_code, str(answer.json().get("error", {}).get("code", ""))

    async def until_settled(self, request: Request) -> Request:
        while (found := await self.client.get(request.id, wait=25)).status == "pending":
            pass
        return found

    async def call_about(self, order: str) -> str:
        for pause in pauses():
            listed = await self.agent.http.get("/v1/approvals", params={"limit": 1_000})
            named = [parse_approval_id(each["id"]) for each in listed.json()["approvals"] if order in each["effect"]]
            if named and named[0] is not None:
                return ".".join(named[0].turn)
            await asyncio.sleep(pause)
        raise AssertionError

    async def decide(self, arguments: Mapping[str, Any], **fields: Any) -> str:
        call = await self.call_about(str(arguments["order"]))
        assert (await self.agent.decide(call, **fields)).json()["status"] == "accepted"
        assert (await self.agent.show(call, wait=50))["state"] != "waiting"
        return call


def asking(
    euro: float = 200, order: str = "", tool: str = "refund", timeout: str = "10m", **fields: Any
) -> dict[str, Any]:
    return {"tool": tool, "arguments": {"order": order or uuid.uuid4().hex, "euro": euro}, "timeout": timeout} | fields


@contextlib.asynccontextmanager
async def adapter(agent: CallRig, name: str = "coder", base: str = "") -> AsyncIterator[Adapter]:
    async def check(response: httpx2.Response) -> None:
        await response.aread()
        assert answer_problems(response.status_code, response.headers, response.json()) == [], response.text

    transport = httpx2.ASGITransport(app=agent.rig.app)
    async with httpx2.AsyncClient(transport=transport, timeout=60, event_hooks={"response": [check]}) as http:
        yield Adapter(agent, http, await call_token(agent.rig, name), base or f"/aap/{name}")
