from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from gateway_login import as_person, browser, hidden, words
from gateway_rig import MONEY, GatewayRig, gateway_rig, turn_of
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.store.store import Store
from signoff.testing.builders import a_person

SCHEMA = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "title": "New amount", "minimum": 1},
        "kind": {"enum": ["cash", "card"]},
        "why": {"type": "string"},
    },
    "required": ["amount"],
}
LINES = {"$ref": "#/$defs/words", "$defs": {"words": {"type": "array", "items": {"type": "string"}, "minItems": 1}}}
PEOPLE = (
    a_person("approver", name="Rui", roles=("approvers",)),
    a_person("guest"),
    a_person("ana", roles=("finance",)),
)


def page_catalog(ledger: Ledger) -> Catalog:
    money: dict[str, Any] = {"input_schema": MONEY, "effect": "Pay {amount} to {to}", "title": "Pay"}
    two = ApprovalPolicy(quorum=2)
    tools = [
        pay_tool(ledger, answer_schema=SCHEMA, **money),
        pay_tool(ledger, name="easy", answer_schema=LINES, **money),
        pay_tool(ledger, two, name="both", answer_schema=SCHEMA, **money),
        pay_tool(ledger, name="typed", **money),
    ]
    return catalog_of(tools, actors=[Actor(name="desk", model="scripted")], people=PEOPLE)


@pytest.fixture
async def rig(client: Client, task_queue: str, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, task_queue, catalog_of_ledger=page_catalog) as found:
        yield found


async def sent(page: httpx2.AsyncClient, approval: str, **fields: str) -> httpx2.Response:
    path = f"/approvals/{approval}/answer"
    form = hidden((await page.get(path)).text, path)
    return await page.post(path, data={**form, **fields}, follow_redirects=True)


async def test_approver_answers_by_the_form_of_the_schema(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    async with browser(rig) as page:
        assert f'href="/approvals/{approval}/answer"' in (await page.get(f"/approvals/{approval}")).text
        form = (await page.get(f"/approvals/{approval}/answer")).text
        assert "New amount" in words(form)
        wrong = await sent(page, approval, **{"args/amount": "0", "reason": "sold <out>"})
        assert (wrong.status_code, (await rig.request(approval)).state) == (422, "pending")
        assert "sold &lt;out&gt;</textarea>" in wrong.text
        fields = {"args/amount": "12.5", "args/kind": '"cash"', "reason": "sold <out>"}
        card = await sent(page, approval, **fields)
        assert card.status_code == 200
        assert "Answered by Rui" in words(card.text)
        assert 'Answer to the agent: {"amount": 12.5, "kind": "cash"}' in words(card.text)
        listed = words((await page.get("/decided?state=answered")).text)
        assert "Answered" in listed
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    assert call.value.inline["answer"] == {"amount": 12.5, "kind": "cash"}
    assert await rig.runs(approval) == 0
    async with browser(rig) as page:
        talk = words((await page.get(f"/turns/{'.'.join(turn_of(approval))}")).text)
        assert "Did not run, answered by Rui" in talk


async def test_schema_that_is_no_object_has_one_field(rig: GatewayRig) -> None:
    approval = await rig.asked("easy")
    async with browser(rig) as page:
        assert (await sent(page, approval, **{"args/answer": ""})).status_code == 422
        assert (await sent(page, approval, **{"args/answer": "one\r\ntwo"})).status_code == 200
    [call] = (await rig.turns.signoff.result(turn_of(approval))).calls
    assert call.value.inline["answer"] == ["one", "two"]


@pytest.mark.parametrize("tool", ["both", "typed"])
async def test_card_offers_no_answer_that_would_be_refused(rig: GatewayRig, tool: str) -> None:
    approval = await rig.asked(tool)
    async with browser(rig) as page:
        assert f"/approvals/{approval}/answer" not in (await page.get(f"/approvals/{approval}")).text
        assert (await page.get(f"/approvals/{approval}/answer")).status_code == 409


async def test_form_of_another_page_answers_nothing(rig: GatewayRig) -> None:
    approval = await rig.asked("pay")
    path = f"/approvals/{approval}/answer"
    async with browser(rig) as page:
        form = hidden((await page.get(path)).text, path)
        forged = await page.post(path, data={**form, "token": "other", "args/amount": "5"})
        assert forged.status_code == 403
        await as_person(page, "ana")
        taken = await page.post(path, data={**form, "args/amount": "5"})
        assert taken.status_code in (403, 404)
        assert (await rig.request(approval)).state == "pending"
