"""Signoff's side: an external agent with a gateway, and the worker that judges and runs its calls."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import httpx2
from temporalio.client import Client

from signoff.contracts.person import Person
from signoff.engine.turn_client import TurnClient
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.keys.signatures import Signer
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, ExternalAgent
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.store.tokens import Tokens
from signoff.worker import build_deps, build_worker
from tools.bench.external_calls.hand_written import require

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "required": ["amount", "to"],
    "additionalProperties": False,
}


class ExternalAgentClient:
    """An external agent of a gateway in the production profile: the gateway checks its token and signs turns."""

    def __init__(self, http: httpx2.AsyncClient, deps: GatewayDeps) -> None:
        self._http = http
        self.deps = deps

    async def run(self) -> str:
        ended = await self._propose("pay", 20)
        require((ended["state"], ended.get("code")) == ("ended", "ok"), ended)
        return str(ended["id"])

    async def permit(self) -> str:
        used = await self._propose("refund", 20, use=True)
        require(used["state"] == "used" and used["args"]["amount"] == 20, used)
        return str(used["id"])

    async def report(self, call: str) -> None:
        await self._end(call, "paid")

    async def ask(self) -> str:
        waiting = await self._propose("refund", 420)
        require(waiting["state"] == "waiting", waiting)
        call = str(waiting["id"])
        approval = f"{call}.c1.1"
        shown = (await self._http.get(f"/v1/approvals/{approval}", headers=self._person)).json()
        answer = {key: shown[key] for key in ("revision", "question_hash")} | {"verdict": "approved"}
        decided = await self._http.post(f"/v1/approvals/{approval}/decide", json=answer, headers=self._person)
        require(decided.is_success, decided.text)
        permitted = (await self._http.get(f"/v1/calls/{call}", params={"wait": 50})).json()
        require(permitted["state"] == "permitted", permitted)
        used = await self._http.post(f"/v1/calls/{call}/use", json={})
        require(used.is_success, used.text)
        await self._end(call, "paid")
        return call

    async def sign_in(self) -> None:
        tokens, now = Tokens(self.deps.store), self.deps.clock()
        day = timedelta(days=1)
        agent, _ = await tokens.create("main", "actor:coder", ("call",), lifetime=day, now=now)
        person, _ = await tokens.create("main", "ana", ("read", "decide"), lifetime=day, now=now)
        self._http.headers["authorization"] = f"Bearer {agent}"
        self._person = {"authorization": f"Bearer {person}"}

    async def _propose(self, tool: str, amount: float, **fields: Any) -> dict[str, Any]:
        body = {"tool": tool, "args": {"amount": amount, "to": "Ana"}, **fields}
        answer = await self._http.post("/v1/calls", json=body, headers={"idempotency-key": uuid.uuid4().hex})
        require(answer.is_success, answer.text)
        found: dict[str, Any] = answer.json()
        return found

    async def _end(self, call: str, result: str) -> None:
        ended = await self._http.post(f"/v1/calls/{call}/outcome", json={"code": "ok", "result": result})
        require(ended.is_success and ended.json()["state"] == "ended", ended.text)


def catalog() -> Catalog:
    async def pay(args: dict[str, object], ctx: ToolContext) -> str:
        return "paid"

    given: dict[str, Any] = {
        "description": "Pay somebody",
        "input_schema": _SCHEMA,
        "scope": "generalist",
        "effect": "Pay {amount} to {to}",
        "requires_approval": ApprovalPolicy(auto_approve_if="args.amount < 50.0 && ctx.user.tier == 'standard'"),
    }
    return build_catalog(
        tools=[
            Tool(name="pay", handler=pay, **given),
            Tool(name="refund", runs="external", handler=run_elsewhere, **given),
        ],
        actors=[Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",)))],
        people=(Person(id="guest", name="Guest"), Person(id="ana", name="Ana", roles=("approvers",))),
    )


@asynccontextmanager
async def open_agent(
    client: Client, store: Store, signer: Signer, task_queue: str
) -> AsyncIterator[ExternalAgentClient]:
    known = catalog()
    room = await build_deps(known, store, people=known.people, profile="production", verifier=signer.verifier())
    deps = GatewayDeps(
        client=TurnClient(client, task_queue=task_queue),
        catalog=known,
        people=known.people,
        store=store,
        settings=Settings(profile="production"),
        signer=signer,
    )
    transport = httpx2.ASGITransport(app=build_app(deps))
    async with (
        build_worker(client, room, task_queue=task_queue),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8300", timeout=60) as http,
    ):
        agent = ExternalAgentClient(http, deps)
        await agent.sign_in()
        yield agent
