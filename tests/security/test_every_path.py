from typing import Any

import pytest
from temporalio.client import Client
from turn_fixtures import GUEST, Ledger, RunningTurns, catalog_of, pay_tool, running_turns

from signoff.contracts import names
from signoff.contracts.call import CallContext
from signoff.contracts.turn import TurnResult
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

_BYPASS: dict[str, Any] = {
    "scope": "specialist",
    "justification": "it only ever reads the price list of the house",
    "routing": "bypass",
    "bypass_routing": BypassRouting(reason="it only ever reads the price list of the house"),
}
GATED: dict[str, dict[str, Any]] = {
    "plain": {},
    "bypassing": _BYPASS,
    "bypassing_and_reading": {**_BYPASS, "read_only": True},
    "reading": {"read_only": True},
    "idempotent": {"idempotent": True},
    "elsewhere": {"task_queue": "nobody-s"},
    "by_a_rule_of_its_own": {"requires_approval": ApprovalPolicy(require_approval_if="args.amount > 1.0")},
    "by_a_rule_of_the_house": {"requires_approval": False},
    "by_rules_that_differ": {"requires_approval": ApprovalPolicy(auto_approve_if="args.amount < 1.0")},
}
NOT_OFFERED = ("hidden", "of_another", "PLAIN", "plain ", names.ANSWERS, names.OUTCOME, names.DECIDE, "approve", "")


def catalog_with(ledger: Ledger) -> Catalog:
    tools = [pay_tool(ledger, name=name, **{"requires_approval": True, **given}) for name, given in GATED.items()]
    free = [pay_tool(ledger, False, name=name) for name in ("hidden", "of_another")]
    rules = [
        GlobalRule(name="house", rule="tool.name == 'by_a_rule_of_the_house'", effect="require_approval"),
        GlobalRule(name="out of sight", rule="tool.name == 'hidden'", effect="hide"),
    ]
    actors = [
        Actor(name="desk", model="scripted", tools=(*GATED, "hidden")),
        Actor(name="other", model="scripted", tools=("of_another",)),
    ]
    return catalog_of([*tools, *free], actors=actors, policies=rules)


async def undecided(found: RunningTurns, **fields: Any) -> TurnResult:
    key = await found.start(**fields)
    if not fields:
        await found.waiting(key, len(GATED))
        await found.signoff.cancel_turn(key)
    return await found.signoff.result(key)


@pytest.mark.row("F38")
@pytest.mark.parametrize("way", ["asked", "dry_run"])
async def test_gated_tool_does_not_run_without_a_decision_on_any_path(
    way: str, client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    script = [calls(*((name, {"amount": 20}) for name in GATED)), respond("done")]
    async with running_turns(client, store, task_queue, catalog_with(ledger), script) as found:
        result = await undecided(found, **({"dry_run": True} if way == "dry_run" else {}))
    assert len(result.calls) == len(GATED)
    assert {outcome.code for outcome in result.calls} == {"denied" if way == "asked" else "ok"}
    assert ledger.rows == []


async def test_unoffered_tool_never_executes(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    script = [calls(*((name, {"amount": 20}) for name in NOT_OFFERED)), respond("done")]
    async with running_turns(client, store, task_queue, catalog_with(ledger), script) as found:
        key = await found.start()
        result = await found.signoff.result(key)
    ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=GUEST)
    offered = {tool.name for tool in found.deps.catalog.offered_tools("desk", ctx)}
    assert {outcome.code for outcome in result.calls} == {"not_available"}
    assert offered == {*GATED, names.RESPOND}
    assert ledger.rows == []
