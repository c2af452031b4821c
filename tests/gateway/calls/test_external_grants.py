from typing import Any

import pytest
from call_rig import call_catalog, call_rig
from gateway_rig import turn_of
from temporalio.client import Client
from turn_fixtures import Ledger, pay_tool

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

MONEY: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "number"}, "to": {"type": "string"}},
    "required": ["amount"],
}


def catalog(ledger: Ledger) -> Catalog:
    return call_catalog(ledger, pay_tool(ledger, ApprovalPolicy(allow_remember=True), name="alike", input_schema=MONEY))


@pytest.mark.parametrize("scope", ["session", "tenant"])
async def test_approval_remembered_for_our_actor_runs_nothing_for_an_external_agent(
    client: Client, store: Store, task_queue: str, scope: str
) -> None:
    async with call_rig(client, store, task_queue, catalog_of_ledger=catalog) as agent:
        approval = await agent.rig.asked("alike")
        key = turn_of(approval)
        wish = {"scope": scope, "where": "args.amount > 0.0", "uses": 5}
        assert (await agent.rig.decide(approval, verdict="approved", remember=wish)).json()["status"] == "accepted"
        await agent.rig.turns.signoff.result(key)
        for session in (key.session, ""):
            named = {"session": session} if session else {}
            proposed = (await agent.propose(tool="alike", args={"amount": 400, "to": "Bo"}, **named)).json()
            assert proposed["state"] == "waiting", proposed
        assert [args["amount"] for name, args, _ in agent.rig.ledger.rows if name == "alike"] == [420]
        again = await agent.rig.start("alike", session=key.session)
        await agent.rig.turns.signoff.result(again)
        assert [args["amount"] for name, args, _ in agent.rig.ledger.rows if name == "alike"] == [420, 420]
