import json

import pytest
from attack_site import AttackSite, approval_id, payee

pytestmark = pytest.mark.timeout(300)


async def test_ended_turn_is_read_without_a_worker(site: AttackSite) -> None:
    # Its result, calls and decisions are readable over the API and on the page without a worker. Without `ended_view`
    # in `GatewayDeps.claimed_view` API and page answered 503.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    key = await rui.ask([("pay", {"amount": 9, "to": to})])
    await ana.approve(approval_id(key))
    before = await rui.result(key)
    page = (await site.browser("rui")).http
    async with site.without("worker"):
        view = await rui.http.get(f"/v1/turns/{'.'.join(key)}")
        shown = await page.get(f"/turns/{'.'.join(key)}")
        card = await ana.see(approval_id(key))
    assert (view.status_code, shown.status_code, card.status) == (200, 200, 200)
    assert view.json()["result"]["calls"] == before["calls"]
    assert (to in shown.text, json.loads(card.words)["state"]) == (True, "approved")
