import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway_login import browser, hidden, words
from gateway_rig import PEOPLE, GatewayRig, gateway_rig, turn_of
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts import names
from signoff.contracts.receipt import Receipt
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.store import Store

MONEY: dict[str, Any] = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "number"}, "currency": {"type": "string"}},
}


def strict_catalog(ledger: Ledger) -> Catalog:
    tools = [pay_tool(ledger, ApprovalPolicy(require_reason=True), input_schema=MONEY)]
    return catalog_of(tools, actors=[Actor(name="desk", model="scripted")], people=PEOPLE)


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    queue = f"reason-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, catalog_of_ledger=strict_catalog) as found:
        yield found


@pytest.mark.parametrize("reason", ["", "  \n"])
async def test_denial_without_a_required_reason_is_refused_by_the_api(rig: GatewayRig, reason: str) -> None:
    approval = await rig.asked("pay")
    refused = await rig.decide(approval, verdict="denied", revision=1, reason=reason)
    assert refused.status_code == 422
    assert (refused.json()["status"], refused.json()["why"]) == ("refused", "reason")
    assert "needs a reason" in refused.json()["message"]
    assert (await rig.request(approval)).state == "pending"
    denied = await rig.decide(approval, verdict="denied", revision=1, reason="too dear")
    assert (denied.json()["status"], denied.json()["reason"]) == ("accepted", "too dear")


async def test_approval_needs_no_reason_if_only_denials_do(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    receipt = await rig.decide(approval, verdict="approved", revision=1)
    assert receipt.json()["status"] == "accepted"


async def test_raw_denial_without_a_required_reason_is_refused(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    handle = rig.turns.client.get_workflow_handle(turn_of(approval).workflow_id)

    async def answer(**fields: Any) -> Receipt:
        body = {"approval_id": approval, "verdict": "denied", **fields}
        return await handle.execute_update(names.DECIDE, body, result_type=Receipt)

    refused = await answer()
    assert (refused.status, refused.code, refused.why) == ("refused", "malformed", "reason")
    assert (await rig.request(approval)).state == "pending"
    assert (await answer(reason="too dear")).status == "accepted"


async def test_inbox_marks_a_required_reason_and_refuses_a_denial_without_one(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/approvals/{approval}/decide"
    async with browser(rig) as page:
        card = (await page.get(f"/approvals/{approval}")).text
        assert "Reason, required to deny" in words(card)
        assert 'maxlength="2000" required></textarea>' in card
        assert 'value="approved" formnovalidate' in card
        form = hidden(card, path)
        refused = await page.post(path, data={**form, "verdict": "denied"}, follow_redirects=True)
        assert refused.status_code == 422
        assert "needs a reason" in words(refused.text)
        assert (await rig.request(approval)).state == "pending"
        assert "Reason, required to deny" in words((await page.get("/batch", params={"pick": approval})).text)
        form = hidden(refused.text, path)
        await page.post(path, data={**form, "verdict": "denied", "reason": "too dear"}, follow_redirects=True)
    assert (await rig.request(approval)).reason == "too dear"
