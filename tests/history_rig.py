"""A store with decided requests of a payment tool, and the history of a production gateway over it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from signed_askers import signed_asker
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.decision import Decision, Verdict
from signoff.contracts.person import Person, Principal
from signoff.contracts.responses import PastRequestList
from signoff.engine.turn_client import TurnClient
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.history.past_reader import PastFilter, PastReader
from signoff.gateway.history.request_indexer import RequestIndexer
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.registry.program.tool_keywords import CardForm
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.testing.questions import answer, ask

PEOPLE = (
    Person(id="ana", name="Ana", roles=("finance",)),
    Person(id="bo", name="Bo", roles=("finance", "audit-team")),
    Person(id="eve", name="Eve", roles=("stock",)),
    Person(id="guest", name="Guest"),
    Person(id="oz", name="Oz", roles=("auditor",)),
    Person(id="gone", name="Gone", roles=("finance",), active=False),
)
SECRET = "hunter2secret"
SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "to": {"type": "string"},
        "note": {"type": "string"},
        "pin": {"type": "string"},
    },
    "required": ["amount", "to"],
}
KEY = b"k" * 32


def history_catalog(**policy: Any) -> Catalog:
    tools = [
        pay_tool(
            Ledger(),
            ApprovalPolicy(approvers=approvers, **policy),
            name=name,
            title=title,
            input_schema=SCHEMA,
            secrets=("pin",),
            card=CardForm(recipients=() if name == "order" else ("to",)),
        )
        for name, title, approvers in (
            ("pay", "Payment", ("role:finance",)),
            ("order", "Order", ("role:stock",)),
            ("gift", "Gift", ("user:eve", "role:finance")),
        )
    ]
    return catalog_of(tools, people=FixedDirectory(PEOPLE))


@dataclass
class HistoryRig:
    store: Store
    profile: str = "production"
    catalog: Catalog = field(default_factory=history_catalog)
    signer: Signer = field(default_factory=lambda: Signer(PrivateKeys(keys=(new_key(datetime.now(UTC)),))))
    number: int = 0

    @property
    def deps(self) -> GatewayDeps:
        settings = Settings(profile=cast(Any, self.profile))
        client = cast(TurnClient, None)
        return GatewayDeps(client, self.catalog, self.catalog.people, self.store, settings, signer=self.signer)

    async def asked(
        self, args: dict[str, Any], *, tool: str = "pay", user: str = "guest", **more: Any
    ) -> ApprovalRequest:
        self.number += 1
        turn = f"t{self.number}"
        by = signed_asker(self.signer, Principal(user=user), "main", "s", turn, at=datetime.now(UTC))
        deps = WorkerDeps(catalog=self.catalog, store=self.store, people=self.catalog.people, drivers={}, mark_key=KEY)
        ctx = CallContext(actor="desk", session="s", turn=turn, tenant="main", user=by)
        return await ask(deps, ctx, self.catalog.tools_named(tool)[0], args, **more)

    async def decided(
        self, args: dict[str, Any], *, by: str = "ana", verdict: Verdict = "approved", **fields: Any
    ) -> ApprovalRequest:
        request = await self.asked(args, **fields)
        await self.answer(request, by, verdict)
        return request

    async def answer(self, request: ApprovalRequest, by: str, verdict: Verdict = "approved") -> None:
        decision = Decision(
            approval_id=request.id,
            revision=request.revision,
            question_hash=request.question_hash,
            verdict=verdict,
            subject=by,
            delivery_id=f"{by}-{verdict}-{request.id}",
            channel="slack" if by == "bo" else "inbox",
        )
        await answer(self.store, decision)

    async def index(self) -> int:
        return await RequestIndexer(self.deps).step()

    async def find(self, person: str, /, text: str = "", **fields: Any) -> PastRequestList:
        paging = {name: fields.pop(name) for name in ("after", "limit") if name in fields}
        return await self.reader(person).find(PastFilter(text, **fields), **paging)

    def reader(self, person: str) -> PastReader:
        return PastReader(self.deps, "main", self.catalog.people.find(person))

    async def found(self, person: str, /, text: str = "", **fields: Any) -> list[str]:
        """The turns of the requests found, which are also counted."""
        page = await self.find(person, text, **fields)
        assert page.count == len(page.decisions)
        return [each.id.split(".")[2] for each in page.decisions]
