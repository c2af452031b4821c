import uuid
from collections.abc import AsyncIterator

import pytest
from gateway_login import asked_of, bearer, browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import PEOPLE, GatewayRig, gateway_rig
from temporalio.client import Client

from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.store.store import Store

OLGA = Person(id="olga", name="Olga", roles=("admin",))
AKI = Person(id="aki", name="Aki", roles=("auditor",))


@pytest.fixture
async def locked(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    people = (*PEOPLE, OLGA, AKI)
    queue = f"operator-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, people=FixedDirectory(people)) as rig:
        yield locked_rig(rig, people=people)


async def test_operator_withdraws_over_the_api(locked: GatewayRig) -> None:
    approval = await asked_of(locked)
    url = f"/v1/approvals/{approval}/withdraw"
    refused = await locked.http.post(url, json={}, headers=bearer(await token_of(locked, "aki")))
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    assert "the role `admin`" in refused.json()["message"]
    done = await locked.http.post(url, json={"reason": "a drill"}, headers=bearer(await token_of(locked, "olga")))
    assert (done.status_code, done.json()["state"], done.json()["decided_by"]) == (200, "cancelled", "olga")
    request = await locked.turns.signoff.request(approval)
    assert (request.state, request.reason) == ("cancelled", "a drill")


async def test_operator_withdraws_on_the_card(locked: GatewayRig) -> None:
    approval = await asked_of(locked)
    for person, offered in (("aki", False), ("olga", True)):
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, person))
            card = (await page.get(f"/approvals/{approval}")).text
            action = f"/approvals/{approval}/withdraw"
            assert (action in card) is offered
            if offered:
                gone = await page.post(action, data=hidden(card, action), follow_redirects=True)
                assert "Withdrawn by Olga (you)" in words(gone.text)
    assert (await locked.turns.signoff.request(approval)).state == "cancelled"
