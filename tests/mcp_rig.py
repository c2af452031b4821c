import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from app_server import running_app
from call_rig import call_catalog, call_token, refund_tool
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import PEOPLE, GatewayRig, gateway_rig, turn_of
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from temporalio.client import Client as TemporalClient
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.people.directory import FixedDirectory
from signoff.plugins.mcp.protocol_server import TASKS
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.temporal.embedded_server import free_port

LEGACY: Final = "legacy"
MODERN: Final = "2026-07-28"
ERAS: Final = (LEGACY, MODERN)


def mcp_catalog(ledger: Ledger) -> Catalog:
    def breaks(args: dict[str, Any], context: Any) -> Any:
        raise ValueError("the bank is closed")

    asks = ApprovalPolicy(auto_approve_if="args.amount < 50.0", deny_if="args.amount > 1000.0", edit="approve")
    tools = [
        refund_tool(),
        pay_tool(ledger, asks, title="Pay"),
        pay_tool(ledger, ApprovalPolicy(allow_self_approval=True), name="move", title="Move", effect="Move {amount}"),
        pay_tool(ledger, False, name="look", read_only=True, effect=""),
        pay_tool(ledger, False, name="broken", handler=ledger.handler("broken", breaks)),
    ]
    return catalog_of(tools, actors=call_catalog(ledger).actors.values(), people=PEOPLE)


@dataclass
class McpRig:
    gateway: GatewayRig
    url: str
    secret: str

    @contextlib.asynccontextmanager
    async def client(
        self, era: str, path: str = "/mcp/coder", *, secret: str = "", **fields: Any
    ) -> AsyncIterator[Client]:
        async with httpx2.AsyncClient(headers=bearer(secret or self.secret), timeout=120) as http:
            transport = streamable_http_client(f"{self.url}{path}", http_client=http)
            async with Client(transport, mode=era, **fields) as client:
                yield client

    async def asked(self, words: str) -> str:
        while True:
            answer = await self.as_person("GET", "/v1/approvals?limit=100")
            found = [each["id"] for each in answer.json()["approvals"] if each["effect"].startswith(words)]
            if found:
                return str(found[0])
            await asyncio.sleep(0.05)

    async def decide(self, approval: str, verdict: str = "approved", **fields: Any) -> None:
        shown = (await self.as_person("GET", f"/v1/approvals/{approval}")).json()
        body = {"verdict": verdict, "question_hash": shown["question_hash"], **fields}
        answer = await self.as_person("POST", f"/v1/approvals/{approval}/decide", json=body)
        assert answer.status_code == 200, answer.text

    async def permitted(self, approval: str) -> None:
        await self.gateway.turns.until(
            turn_of(approval), lambda view: any(each.state == "permitted" for each in view.calls)
        )

    async def as_person(self, method: str, path: str, **fields: Any) -> httpx2.Response:
        headers = bearer(await token_of(self.gateway, "approver"))
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            return await http.request(method, f"{self.url}{path}", **fields)

    async def post(self, body: Any, path: str = "/mcp/coder", **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **bearer(self.secret),
            **headers,
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            return await http.post(f"{self.url}{path}", content=content, headers=given)

    async def ask_modern(self, method: str, extensions: Any = None, **params: Any) -> dict[str, Any]:
        body, headers = modern_request(method, extensions, **params)
        found: dict[str, Any] = (await self.post(body, **headers)).json()
        return found

    async def settled_task(self, task: str) -> dict[str, Any]:
        while True:
            found: dict[str, Any] = (await self.ask_modern("tasks/get", taskId=task))["result"]
            if found["status"] != "working":
                return found
            await asyncio.sleep(0.05)


def modern_request(method: str, extensions: Any = None, **params: Any) -> tuple[dict[str, Any], dict[str, str]]:
    declared = {TASKS: {}} if extensions is None else extensions
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {"extensions": declared},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    named = str(params.get("name", params.get("taskId", "")))
    return body, {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": named}


def text_of_result(result: Any) -> str:
    return " | ".join(each.text for each in result.content)


@contextlib.asynccontextmanager
async def mcp_rig(
    client: TemporalClient, store: Store, task_queue: str, catalog: Callable[[Ledger], Catalog] = mcp_catalog
) -> AsyncIterator[McpRig]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with gateway_rig(
        client,
        store,
        task_queue,
        profile="production",
        people=FixedDirectory(PEOPLE),
        catalog_of_ledger=catalog,
    ) as open_rig:
        locked = locked_rig(open_rig, public_url=url)
        async with running_app(locked.app, port):
            yield McpRig(locked, url, await call_token(locked, "coder"))
