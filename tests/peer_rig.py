import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.types.a2a_pb2 import AgentCard, Message, Part, Role, SendMessageRequest, StreamResponse, Task, TaskState
from app_server import running_app
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import PEOPLE, GatewayRig, gateway_rig
from google.protobuf.json_format import ParseDict
from temporalio.client import Client as TemporalClient
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import text_of
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import PEER
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.temporal.embedded_server import free_port
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

PARTNER: Final = Person(id="partner", name="The agent of a partner")
RIVAL: Final = Person(id="rival", name="Another agent")
# Separate tenants: the turns of other tests' strangers would appear in the lists.
FAR: Final = Person(id="far", name="Another tenant's agent", tenant="globex")
BOSS: Final = Person(id="boss", name="Boss", tenant="globex", roles=("admin",))
PEERS: Final = (*PEOPLE, FAR, BOSS, PARTNER, RIVAL)
MONEY: Final = {"amount": 420, "to": "Ana"}
SCHEMA: Final = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "required": ["amount", "to"],
    "examples": [MONEY],
}
OUTPUT: Final = {"type": "string"}


def react(request: CompletionRequest) -> Completion:
    settled = results(request)
    if settled:
        return respond("; ".join(f"{part.tool}: {part.code} {text_of(part.value)}".strip() for part in settled))
    text = last_user_text(request)
    if "offered" in text:
        return respond(" ".join(tool.name for tool in request.tools))
    if "parts" in text:
        parts = [
            {"type": kind, "content": {"of": kind}} for kind in ("chart", "citation", "llm-context", "reasoning-trace")
        ]
        return respond("In parts.", parts=parts)
    if "which" in text:
        return respond("To whom?", state="clarifying")
    if "pass" in text and "other" in str(request.tools[-1].parameters):
        return respond("", state="passed", passTo="other")
    if "before" in text:
        return respond(" / ".join(text_of(part.text) for m in request.messages for part in m.parts if m.role == "user"))  # type: ignore[union-attr]
    named = [(word, MONEY) for word in text.split() if word in ("pay", "small", "refund", "hidden", "own")]
    return calls(*named) if named else respond(f"You said: {text}")


def peer_catalog(ledger: Ledger) -> Catalog:
    exposed: dict[str, Any] = {"peer_exposed": True, "input_schema": SCHEMA}
    tools = [
        pay_tool(
            ledger,
            ApprovalPolicy(timeout=3600.0, allow_remember=True),
            title="Pay",
            tags=("money",),
            output_schema=OUTPUT,
            **exposed,
        ),
        pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 1000.0"), name="small", **exposed),
        pay_tool(ledger, ApprovalPolicy(deny_if="args.amount > 100.0"), name="refund", **exposed),
        pay_tool(ledger, False, name="hidden", effect=""),
        pay_tool(ledger, False, name="own", scope="specialist", justification="only the desk does this"),
    ]
    actors = [
        Actor(name="desk", model="scripted", description="Pays and books."),
        Actor(name="other", model="scripted", tools=("hidden",)),
    ]
    return catalog_of(tools, actors=actors, people=PEERS, part_types=["chart"], requires_peer_consumes=["chart"])


@dataclass
class PeerRig:
    gateway: GatewayRig
    url: str

    async def token(self, person: str = "partner", **fields: Any) -> str:
        return await token_of(self.gateway, person, PEER, **fields)

    @contextlib.asynccontextmanager
    async def agent(self, person: str = "partner", **fields: Any) -> AsyncIterator["PeerClient"]:
        async with httpx.AsyncClient(headers=bearer(await self.token(person, **fields)), timeout=60) as http:
            card = await A2ACardResolver(http, self.url).get_agent_card()
            sdk, live = (
                ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)
                for streaming in (False, True)
            )
            yield PeerClient(sdk, live, card, http, self)

    async def rpc(self, method: str, params: Any = None, **fields: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **fields}
        return await self.post(json.dumps(body).encode())

    async def post(self, body: bytes, **headers: str) -> dict[str, Any]:
        given = {"content-type": "application/json", "a2a-version": "1.0", **bearer(await self.token()), **headers}
        async with httpx.AsyncClient(timeout=60) as http:
            answer = await http.post(f"{self.url}/a2a/desk", content=body, headers=given)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@dataclass
class PeerClient:
    sdk: Client
    live: Client
    card: AgentCard
    http: httpx.AsyncClient
    rig: PeerRig

    async def send(self, text: str, context: ClientCallContext | None = None, **fields: Any) -> Task:
        (event,) = [each async for each in self.sdk.send_message(message(text, **fields), context=context)]
        assert event.HasField("task")
        return event.task

    async def stream(self, text: str, **fields: Any) -> AsyncIterator[StreamResponse]:
        async for each in self.live.send_message(message(text, **fields)):
            yield each

    async def decide(self, task: Task, verdict: str = "approved", person: str = "approver", **fields: Any) -> None:
        view = await self.rig.gateway.turns.waiting(key_of(task))
        (approval,) = [each.approval for each in view.calls if each.approval is not None]
        headers = bearer(await token_of(self.rig.gateway, person))
        address = f"{self.rig.url}/v1/approvals/{approval.id}"
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            shown = (await http.get(address)).json()
            body = {"verdict": verdict, "question_hash": shown["question_hash"], **fields}
            answer = await http.post(f"{address}/decide", json=body)
        assert answer.status_code == 200, answer.text


def message(text: str, message_id: str = "", *, data: Any = None, **fields: Any) -> SendMessageRequest:
    parts = [Part(text=text), *([] if data is None else [ParseDict({"data": data}, Part())])]
    given = Message(message_id=message_id or fresh_id(), role=Role.ROLE_USER, parts=parts, **fields)
    return SendMessageRequest(message=given)


def fresh_id() -> str:
    return uuid.uuid4().hex


def key_of(task: Task) -> TurnKey:
    return TurnKey(*task.id.split("."))


def state_of(task: Task) -> str:
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_")


def answer_of(task: Task) -> str:
    return " ".join(part.text for artifact in task.artifacts for part in artifact.parts if part.text)


@contextlib.asynccontextmanager
async def peer_rig(client: TemporalClient, store: Store, task_queue: str) -> AsyncIterator[PeerRig]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with gateway_rig(
        client,
        store,
        task_queue,
        profile="production",
        people=FixedDirectory(PEERS),
        catalog_of_ledger=peer_catalog,
        model=ScriptedModel(react),
    ) as open_rig:
        locked = locked_rig(open_rig, people=PEERS, public_url=url)
        async with running_app(locked.app, port):
            yield PeerRig(locked, url)
