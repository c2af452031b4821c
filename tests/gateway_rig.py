import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
from fastapi import FastAPI
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, catalog_of, pay_tool, running_turns

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.completion import Completion, CompletionRequest, Driver
from signoff.contracts.content import text_of
from signoff.contracts.errors import ModelRefused, ModelUnavailable
from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.contracts.person import Person
from signoff.contracts.preview import Code, Diff, Email, File, Image, Markdown, PreviewPart, Sql, Table, Text
from signoff.gateway.app import build_app
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.repair_task import AnswerDispatcher
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.hooks import HookContext
from signoff.registry.program.tool_keywords import CardForm
from signoff.registry.tool_result import ToolFailure
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.store.tickets import ticket_key
from signoff.telemetry.span_sender import SpanSender
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results, say

PEOPLE = (
    Person(id="guest", name="Guest"),
    a_person("approver", name="Approver"),
    Person(id="ana", name="Ana", roles=("approvers", "finance"), tier="trusted", locale="de"),
    Person(id="bo", name="Bo", roles=("finance",)),
    a_person("gone", name="Gone", active=False),
)
BASE = "http://127.0.0.1:8300"
PASSWORD = "correct horse"
SIGNER = Signer(PrivateKeys(keys=(new_key(datetime(2026, 1, 1, tzinfo=UTC)),)))

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "Amount to pay", "minimum": 1},
        "by": {"enum": ["bank transfer", "card"], "title": "Way to pay"},
        "words": {"type": "array", "items": {"type": "string"}, "title": "Words for the customer"},
    },
    "required": ["amount"],
}
MONEY: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "currency": {"type": "string", "default": "EUR"},
        "to": {"type": "string", "title": "Payee"},
        "memo": {"type": "string"},
    },
    "required": ["amount", "to"],
}
_ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "title": "Supplier"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"article": {"type": "string"}, "pieces": {"type": "integer"}},
            },
        },
    },
    "required": ["to", "items"],
}
_MAIL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "title": "To"},
        "text": {"type": "string", "title": "Text"},
        "sql": {"type": "string", "title": "Statement"},
    },
    "required": ["to", "text"],
}
_WIDE: Final[dict[str, Any]] = {
    "article": "pencil, HB, with eraser",
    "pieces": 1,
    "supplier": "Schmidt",
    "place": "second floor, room 214",
    "note": "by December",
}
LETTER: Final = "Dear Ana,\n\nthe invoice is attached.\n  Please pay it.\n\nBo"
STATEMENT: Final = "select *\n  from invoices\n where paid is null\n" + "\n".join(
    f"   and id <> {number}" for number in range(30)
)
BUSY: Final = "be busy"
"""A message that the model does not answer for now."""
LINES: Final = 300
"""Lines of an order: its values take more than one page."""
_TWO: Final = ApprovalPolicy(approvers=("role:finance",), quorum=2, allow_remember=True, edit="approve")
_URGENT: Final = ApprovalPolicy(
    timeout=7_200.0, remind_after=1_800.0, escalate_after=3_600.0, escalate_to=("role:finance",), on_timeout="escalate"
)
_LOGIN: dict[str, Any] = {
    "type": "object",
    "properties": {"site": {"type": "string", "format": "uri"}, "password": {"type": "string", "writeOnly": True}},
    "required": ["site", "password"],
}

_FLIGHT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "flight": {"type": "string", "description": "As on the ticket."},
        "cost": {"type": "number", "minimum": 0, "maximum": 1000},
        "currency": {"type": "string", "default": "EUR"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9},
        "class": {"enum": ["economy", "business"]},
        "refundable": {"type": "boolean"},
        "traveller": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "born": {"type": "string", "format": "date"}},
            "required": ["name"],
        },
        "extras": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "meta": {"type": "object"},
        "card": {"type": "string", "writeOnly": True},
        "wish": {"type": ["string", "null"]},
    },
    "required": ["flight", "cost", "seats", "class", "traveller", "card"],
    "additionalProperties": False,
}
FLIGHT: dict[str, Any] = {
    "flight": "TP 531",
    "cost": 420.0,
    "currency": "EUR",
    "seats": 1,
    "class": "business",
    "refundable": False,
    "traveller": {"name": "Ana Sousa"},
    "extras": ["window seat"],
    "meta": {"pnr": "X1"},
    "card": PASSWORD,
}


PICTURE: Final = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx"
    b"\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


def answer_approver(request: CompletionRequest) -> Completion:
    """`<b>` tests pages, and the password tests masks."""
    text = last_user_text(request)
    if "refuse" in text:
        raise ModelRefused("no")
    if "busy" in text:
        raise ModelUnavailable("the model's provider answered 503", retry_after=60)
    return say(f"It is <b>due</b>, with {len(request.tools)} tools and {PASSWORD}.")


def react(request: CompletionRequest) -> Completion:
    if "An approver asks about your call" in last_user_text(request):
        return answer_approver(request)
    settled = results(request)
    if settled:
        return respond("; ".join(f"{part.tool}: {part.code} {text_of(part.value)}".strip() for part in settled))
    text = last_user_text(request)
    if text == BUSY:
        raise ModelUnavailable("the model's provider answered 503", retry_after=60)
    money = {"amount": 420, "currency": "EUR", "to": "Ana"}
    known: dict[str, tuple[str, Any]] = {
        "pay": ("pay", money),
        "long": ("pay", {**money, "memo": "word " * 400}),
        "strange": ("pay", {**money, "to": "Ana\u202esousA <b>&"}),
        "small": ("small", {"amount": 20, "to": "Bo"}),
        "refund": ("refund", {"amount": 500, "to": "Bo"}),
        "login": ("login", {"site": "https://example.com", "password": PASSWORD}),
        "repeat": ("login", {"site": f"https://example.com/?{'x' * 2_000}&of={PASSWORD}", "password": PASSWORD}),
        "both": ("both", money),
        "typed": ("typed", money),
        "easy": ("easy", money),
        "guarded": ("guarded", money),
        "fail": ("fail", money),
        "shown": ("shown", money),
        "settle": ("settle", money),
        "alike": ("alike", money),
        "book": ("book", FLIGHT),
        "trip": ("trip", FLIGHT),
        "urgent": ("urgent", money),
        "order": ("order", {"to": "Bo", "items": [{"article": f"pencil {n}", "pieces": n} for n in range(LINES)]}),
        "wide": ("order", {"to": "Bo", "items": [_WIDE, {**_WIDE, "pieces": 2}]}),
        "write": ("mail", {"to": "Ana", "text": LETTER}),
        "query": ("mail", {"to": "Ana", "text": "one line", "sql": STATEMENT}),
        "wrong": ("pay", {"amount": "much", "to": "Bo"}),
    }
    wanted = [known[word] for word in text.split() if word in known]
    return calls(*wanted, text=f"Somebody said: {text}"[:200]) if wanted else respond(f"You said: {text}"[:500])


async def preview_of_all(args: dict[str, Any], context: HookContext) -> list[PreviewPart]:
    """A part of each kind."""
    before = "\n".join(f"server {number}" for number in range(30))
    after = before.replace("server 4\n", "server four\n    again\n")
    return [
        Diff(title="nginx.conf", before=before, after=after),
        Table(title="Payments", columns=("to", "amount"), rows=tuple((f"Person {n}", 1_000.5 * n) for n in range(60))),
        Markdown(title="Release notes", text="# Version 2\n\n- **faster**\n- `signoff dev`\n\n```\ncode\n```\n"),
        Email(title="Mail", to=("ana@example.com", "bo@example.com"), subject="Refund", text="Dear Ana,\n\nBo"),
        Sql(
            title="Clean",
            statement="DELETE FROM drafts WHERE id < 40",
            plan="Delete on drafts\n  ->  Seq Scan on drafts",
        ),
        Code(title="migrate.py", text=f"def main():\n\tprint('{'x' * 300}')\n", language="python"),
        File(title="Page", path="/srv/site/index.html", size=1_234_567, sha256="ab12" * 16),
        Image(title="Refunds by week", data=PICTURE, text="They fall."),
        Text(title="Note", text="one\u202etwo"),
    ]


def rig_catalog(ledger: Ledger) -> Catalog:
    def fails(args: dict[str, Any], context: Any) -> ToolFailure:
        return ToolFailure("the bank is closed")

    money: dict[str, Any] = {"input_schema": MONEY, "effect": "Pay {amount} {currency} to {to}", "title": "Pay"}
    flight: dict[str, Any] = {
        "input_schema": _FLIGHT,
        "effect": "Book {flight} in {class}, {cost} {currency}",
        "title": "Book a flight",
    }
    tools = [
        pay_tool(ledger, **money),
        pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount < 50.0"), name="small", **money),
        pay_tool(ledger, ApprovalPolicy(deny_if="args.amount > 100.0"), name="refund", **money),
        pay_tool(ledger, name="login", input_schema=_LOGIN, effect="Log in to {site}", title="Log in"),
        pay_tool(ledger, ApprovalPolicy(approvers=("role:finance",), quorum=2), name="both", **money),
        pay_tool(
            ledger, ApprovalPolicy(confirm="type", min_assurance="session", edit="approve"), name="typed", **money
        ),
        pay_tool(ledger, ApprovalPolicy(min_assurance="link", allow_remember=True), name="easy", **money),
        pay_tool(ledger, ApprovalPolicy(min_assurance="present", edit="approve"), name="guarded", **money),
        pay_tool(ledger, ApprovalPolicy(allow_remember=True), name="alike", card=CardForm(recipients=("to",)), **money),
        pay_tool(ledger, ApprovalPolicy(edit="approve"), name="book", **flight),
        pay_tool(ledger, _TWO, name="trip", **flight),
        pay_tool(ledger, _URGENT, name="urgent", **money),
        pay_tool(ledger, name="settle", answer_schema=ANSWER_SCHEMA, **money),
        pay_tool(ledger, name="order", input_schema=_ORDER, effect="Order from {to}", title="Order"),
        pay_tool(ledger, name="mail", input_schema=_MAIL, effect="Write to {to}", title="Write a mail"),
        pay_tool(ledger, ApprovalPolicy(preview_required=True), name="shown", preview=preview_of_all, **money),
        pay_tool(ledger, name="fail", handler=ledger.handler("fail", fails), **money),
    ]
    actors = [
        Actor(name="desk", model="scripted", description="Pays and books."),
        Actor(name="other", model="scripted", tools=()),
    ]
    return catalog_of(tools, actors=actors, people=PEOPLE)


def turn_of(approval: str) -> TurnKey:
    key = parse_approval_id(approval)
    assert key is not None
    return key.turn


def http_of(app: Any, **transport: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app, **transport), base_url=BASE, timeout=60)


@dataclass
class GatewayRig:
    http: httpx2.AsyncClient
    app: FastAPI
    deps: GatewayDeps
    turns: RunningTurns
    ledger: Ledger = field(default_factory=Ledger)

    def beside(self, **changes: Any) -> "GatewayRig":
        """Without changes it only knows the store."""
        deps = dataclasses.replace(self.deps, **changes)
        app = build_app(deps)
        return dataclasses.replace(self, http=http_of(app), app=app, deps=deps)

    def without_secrets(self) -> "GatewayRig":
        catalog = self.deps.catalog
        names = tuple(tool.name for tool in catalog.tools() if not tool.masked_arguments)
        desk = dataclasses.replace(catalog.actors["desk"], tools=names)
        return self.beside(catalog=dataclasses.replace(catalog, actors={**catalog.actors, "desk": desk}))

    async def start(self, text: str, **fields: Any) -> TurnKey:
        answer = await self.http.post("/v1/turns", json={"text": text, "actor": "desk", **fields})
        assert answer.status_code == 201, answer.text
        body = answer.json()
        return TurnKey(body["tenant"], body["session"], body["turn"])

    async def asked(self, text: str, **fields: Any) -> str:
        view = await self.turns.waiting(await self.start(text, **fields))
        return next(call.approval.id for call in view.calls if call.approval is not None)

    async def doubted(self, text: str = "pay") -> str:
        """Start a turn whose approved call is lost, and return the id of the request about its outcome."""
        approval = await self.asked(text)
        request = await self.turns.signoff.request(approval)
        turn = turn_of(approval)
        key = ticket_key(request.digest, 1)
        nonce, workflow = request.requester.nonce, turn.workflow_id
        await self.turns.store.claim(key, workflow=workflow, call=request.call, tool=request.tool, nonce=nonce)
        await self.decide(approval, verdict="approved", revision=1)
        await self.turns.until(turn, lambda view: any(_asks_of_doubt(call.approval) for call in view.calls))
        return approval

    async def request(self, approval: str) -> ApprovalRequest:
        return (await self.deps.requests.load(approval)).request

    async def records(self, approval: str) -> list[Record]:
        return await AuditLog(self.deps.store).stream(turn_of(approval).workflow_id)

    async def acts(self, tenant: str = "main") -> list[Record]:
        return await AuditLog(self.deps.store).stream(f"admin/{tenant}")

    async def runs(self, approval: str) -> int:
        key = ticket_key((await self.turns.signoff.request(approval)).digest, 1)
        return sum(row[2] == key for row in self.ledger.rows)

    async def decide(self, approval: str, **fields: Any) -> httpx2.Response:
        acting = {"as": fields.pop("as")} if "as" in fields else {}
        return await self.http.post(f"/v1/approvals/{approval}/decide", params=acting, json=fields)


def _asks_of_doubt(request: ApprovalRequest | None) -> bool:
    return request is not None and (request.kind, request.state) == ("in_doubt", "pending")


@contextlib.asynccontextmanager
async def gateway_rig(
    client: Client,
    store: Store,
    task_queue: str,
    *,
    clock: Callable[[], datetime] | None = None,
    catalog_of_ledger: Callable[[Ledger], Catalog] = rig_catalog,
    model: Driver | None = None,
    dispatches: bool = True,
    spans: SpanSender | None = None,
    signer: Signer = SIGNER,
    **worker: Any,
) -> AsyncIterator[GatewayRig]:
    """`worker` is passed to `running_turns`. If it `dispatches`, the dispatcher delivers answers that a busy machine
    did not deliver at once.
    """
    ledger = Ledger()
    catalog = catalog_of_ledger(ledger)
    driver = ScriptedModel(react) if model is None else model
    async with running_turns(
        client, store, task_queue, catalog, driver, verifier=signer.verifier(), spans=spans, **worker
    ) as turns:
        deps = GatewayDeps(
            client=turns.signoff,
            catalog=catalog,
            people=catalog.people,
            store=store,
            settings=Settings(otel=spans is not None),
            spans=spans,
            clock=clock or (lambda: datetime.now(UTC)),
            signer=signer,
            first_words="pay",
            first_actor="desk",
            first_command="signoff ask pay",
        )
        app = build_app(deps)
        async with http_of(app) as http:
            dispatcher = asyncio.create_task(AnswerDispatcher(deps).run()) if dispatches else None
            try:
                yield GatewayRig(http, app, deps, turns, ledger)
            finally:
                if dispatcher is not None:
                    dispatcher.cancel()
                    await asyncio.wait([dispatcher])


def fresh() -> str:
    return f"t{uuid.uuid4().hex[:12]}"
