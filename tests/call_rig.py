import asyncio
import contextlib
import dataclasses
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import httpx2
from gateway_login import locked_rig
from gateway_rig import PEOPLE, GatewayRig, gateway_rig
from polling import pauses
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.gateway.audit_writer import AttemptRecords
from signoff.gateway.deps import GatewayDeps
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Callbacks, ExternalAgent
from signoff.registry.catalog import Catalog
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.store.tokens import Tokens

REFUND: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "euro": {"type": "number"}},
    "required": ["order", "euro"],
    "additionalProperties": False,
}
SHELL: dict[str, Any] = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
    "required": ["command"],
}
PAGE: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
    "required": ["to", "text"],
}
SHELL_RULES = ApprovalPolicy(
    auto_approve_if="args.command.startsWith('ls')", deny_if="args.command.contains('sudo')", edit="approve"
)
RUNS = "Run {command}"
RULES = ApprovalPolicy(auto_approve_if="args.euro < 50.0", deny_if="args.euro > 1000.0", edit="approve")


def refund_tool(requires_approval: Any = RULES, **fields: Any) -> Tool:
    given: dict[str, Any] = {
        "name": "refund",
        "description": "Refund an order",
        "input_schema": REFUND,
        "scope": "generalist",
        "runs": "external",
        "handler": run_elsewhere,
        "requires_approval": requires_approval,
        "effect": "Refund {euro} EUR for {order}",
        "title": "Refund",
    }
    return Tool(**(given | fields))


def call_catalog(ledger: Ledger, *more: Tool) -> Catalog:
    tools = [
        refund_tool(),
        refund_tool(name="quick", timeout=1.0),
        refund_tool(ApprovalPolicy(timeout=1.0), name="brief"),
        refund_tool(name="asked", timeout=1.0, unreported="ask", requires_approval=False),
        pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 50.0")),
        refund_tool(ApprovalPolicy(edit="approve"), name="send_page", input_schema=PAGE, title="", effect="Page {to}"),
        refund_tool(SHELL_RULES, name="Bash", description="Run a command", input_schema=SHELL, title="", effect=RUNS),
        refund_tool(
            ApprovalPolicy(allow_remember=True),
            name="Terminal",
            input_schema=SHELL,
            title="",
            effect=RUNS,
            remarks=("description",),
        ),
        *more,
    ]
    actors = [
        Actor(name="coder", model="", external=ExternalAgent(acts_for=("user:guest",))),
        Actor(name="roamer", model="", external=ExternalAgent(acts_for=("user:guest",), undeclared="ask")),
        Actor(name="clerk", model="", external=ExternalAgent(acts_for=("role:finance",))),
        Actor(name="desk", model="scripted"),
    ]
    return catalog_of(tools, actors=actors, people=PEOPLE)


@dataclass
class CallRig:
    rig: GatewayRig

    @property
    def http(self) -> httpx2.AsyncClient:
        return self.rig.http

    async def propose(self, euro: float = 20, key: str = "", **fields: Any) -> httpx2.Response:
        body = {"agent": "coder", "tool": "refund", "args": {"order": "A7", "euro": euro}} | fields
        headers = {"idempotency-key": key or uuid.uuid4().hex}
        return await self.http.post("/v1/calls", json=body, headers=headers)

    async def join(self, euro: float = 20, **fields: Any) -> httpx2.Response:
        """Without a key a proposal joins an equal one."""
        body = {"agent": "coder", "tool": "refund", "args": {"order": "A7", "euro": euro}} | fields
        return await self.http.post("/v1/calls", json=body)

    async def show(self, call: str, **params: Any) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/calls/{call}", params={"agent": "coder"} | params)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def ended(self, call: str, **params: Any) -> dict[str, Any]:
        """A busy server may answer from the store for a moment longer."""
        for pause in pauses():
            found = await self.show(call, **params)
            if found["state"] == "ended":
                return found
            await asyncio.sleep(pause)
        raise AssertionError("pauses never end")

    async def use(self, call: str, key: str = "") -> httpx2.Response:
        headers = {"idempotency-key": key} if key else {}
        return await self.http.post(f"/v1/calls/{call}/use", params={"agent": "coder"}, headers=headers, json={})

    async def report(self, call: str, code: str = "ok", result: Any = "refunded") -> httpx2.Response:
        body = {"code": code, "result": result}
        return await self.http.post(f"/v1/calls/{call}/outcome", params={"agent": "coder"}, json=body)

    async def withdraw(self, call: str) -> httpx2.Response:
        headers = {"content-type": "application/json"}
        return await self.http.delete(f"/v1/calls/{call}", params={"agent": "coder"}, headers=headers)

    async def decide(self, call: str, **fields: Any) -> httpx2.Response:
        approval = approval_of(call)
        request = await self.rig.request(approval)
        shown = {"revision": request.revision, "question_hash": request.question_hash}
        return await self.rig.decide(approval, **({"verdict": "approved"} | shown | fields))

    async def record(self, call: str) -> list[tuple[str, dict[str, Any]]]:
        answer = await self.http.get(f"/v1/audit/{call}")
        assert answer.status_code == 200, answer.text
        return [(each["kind"], json.loads(each["data"])) for each in answer.json()["records"]]

    async def events(self, call: str) -> list[str]:
        return await self.rig.turns.events(TurnKey(*call.split(".")))


def approval_of(call: str) -> str:
    return ApprovalKey(TurnKey(*call.split(".")), "c1.1").id


def second_gateway(agent: CallRig) -> CallRig:
    return CallRig(agent.rig.beside())


def with_callbacks(deps: GatewayDeps, callbacks: Callbacks) -> GatewayDeps:
    coder = deps.catalog.actors["coder"]
    assert coder.external is not None
    changed = dataclasses.replace(coder, external=dataclasses.replace(coder.external, callbacks=callbacks))
    catalog = dataclasses.replace(deps.catalog, actors={**deps.catalog.actors, "coder": changed})
    return dataclasses.replace(deps, catalog=catalog)


async def call_token(rig: GatewayRig, name: str) -> str:
    day, now = timedelta(days=1), rig.deps.clock()
    secret, _ = await Tokens(rig.deps.store).create("main", f"actor:{name}", ("call",), lifetime=day, now=now)
    return secret


def production_gateway(rig: GatewayRig, clock: Callable[[], datetime] | None = None, **settings: Any) -> GatewayRig:
    deps = dataclasses.replace(rig.deps, attempts=AttemptRecords())
    return locked_rig(dataclasses.replace(rig, deps=deps), clock=clock, **settings)


async def refusals(rig: GatewayRig, subject: str, tool: str = "") -> list[dict[str, Any]]:
    found = [each.facts for each in await rig.acts() if (each.kind, each.subject) == ("attempt", subject)]
    return [each for each in found if each.get("tool", "") == tool]


@contextlib.asynccontextmanager
async def call_rig(client: Client, store: Store, task_queue: str, **more: Any) -> AsyncIterator[CallRig]:
    async with gateway_rig(client, store, task_queue, **({"catalog_of_ledger": call_catalog} | more)) as rig:
        yield CallRig(rig)
