from typing import Any

import pytest
from tables import table
from temporalio.testing import ActivityEnvironment
from turn_fixtures import AMOUNT_SCHEMA, GUEST, Ledger, catalog_of, pay_tool

from signoff.activities.gate_activity import GateActivity
from signoff.activities.worker_deps import WorkerDeps
from signoff.contracts.activity_messages import GateTask
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.gateway.approvals.edited_card import edited_request
from signoff.policy.approval_policy import ApprovalPolicy, ShownArguments
from signoff.registry.actor import Actor, Route
from signoff.registry.catalog import Catalog
from signoff.registry.tool import Tool
from signoff.store.store import Store

AMOUNT = ApprovalPolicy(show=ShownArguments(only=("amount",)))
OTHER = {**AMOUNT_SCHEMA, "required": []}
ARGS = {"amount": 20, "to": "Ana"}
EDITED = {"amount": 15, "to": "Bo"}


def tool(approval: Any, **fields: Any) -> Tool:
    return pay_tool(Ledger(), approval, **fields)


def worker_deps(store: Store, *tools: Tool, **fields: Any) -> WorkerDeps:
    catalog = catalog_of(tools, **fields)
    return WorkerDeps(catalog=catalog, store=store, people=catalog.people, drivers={}, mark_key=b"k" * 32)


def deps_with(store: Store, near: Tool, far: Tool) -> WorkerDeps:
    """`near` is on a route of `desk`, over `far` in the registry."""
    route = Route(name="r", tools=(near,))
    return worker_deps(store, far, actors=[Actor(name="desk", model="scripted", routes=(route,), shadowing="allow")])


async def asked(deps: WorkerDeps, args: Any = ARGS, **fields: Any) -> ApprovalRequest:
    route = "r" if deps.catalog.scopes["desk"].routed else ""
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=GUEST, route=route)
    task = GateTask(ctx=ctx, calls=(CallPart(call="c1.1", tool="pay", args=Content(inline=args)),), **fields)
    (gate_decision,) = (await ActivityEnvironment().run(GateActivity(deps).gate, task)).gate_decisions
    assert gate_decision.request is not None, gate_decision
    return gate_decision.request


def shown(card: Card) -> tuple[str, list[tuple[str, str]]]:
    return card.effect, [(row.name, row.value) for row in card.rows]


@table(
    ("near", "far"),
    (tool(False), tool(AMOUNT)),
    (tool(AMOUNT), tool(AMOUNT)),
    (tool(True), tool(AMOUNT)),
    (tool(AMOUNT), tool(False)),
    (tool(AMOUNT), tool(True, input_schema=OTHER)),
)
async def test_card_of_an_edit_follows_the_effective_policy(near: Tool, far: Tool, store: Store) -> None:
    deps = deps_with(store, near, far)
    edited = edited_request(await asked(deps), EDITED, deps.catalog)
    assert shown(edited.card) == shown((await asked(deps, EDITED, revision=2, edited_by="ana")).card)


async def test_hidden_arguments_stay_hidden_on_the_card_of_an_edit(store: Store) -> None:
    deps = deps_with(store, tool(False), tool(AMOUNT))
    edited = edited_request(await asked(deps), EDITED, deps.catalog)
    assert [(row.name, row.value) for row in edited.card.rows] == [("amount", "15"), ("", "1 more not shown")]


@pytest.mark.parametrize("approval", [True, AMOUNT])
async def test_edit_of_an_unknown_tool_shows_no_more_rows(approval: Any, store: Store) -> None:
    request = await asked(worker_deps(store, tool(approval)))
    another = worker_deps(store, tool(True, input_schema=OTHER)).catalog
    known: list[Catalog | None] = [None, another]
    for catalog in known:
        names = [row.name for row in edited_request(request, EDITED, catalog).card.rows]
        assert names == [row.name for row in request.card.rows]


async def test_complete_card_shows_added_arguments(store: Store) -> None:
    request = await asked(worker_deps(store, tool(True)), {"amount": 20})
    assert [row.name for row in request.card.rows] == ["amount"]
    assert [row.name for row in edited_request(request, EDITED, None).card.rows] == ["amount", "to"]
