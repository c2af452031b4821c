"""An approver approves, then denies with the same form, link or key: the denial counts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from attack_site import AttackSite, Shown, approval_id, binding, form_fields, payee

from signoff.contracts.ids import TurnKey
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.store.store import open_store


async def asked(site: AttackSite, tool: str, to: str) -> tuple[TurnKey, Shown]:
    key = await site.person("rui").ask([(tool, {"amount": 400, "to": to})])
    return key, await site.person("ana").waiting(approval_id(key))


async def by_page(site: AttackSite, shown: Shown) -> None:
    browser, approval = await site.browser("ana"), shown.view["id"]
    _, fields = await browser.open(approval)
    for verdict in ("approved", "denied"):
        await browser.send(approval, fields, verdict)


async def by_key(site: AttackSite, shown: Shown) -> None:
    for verdict in ("approved", "denied", "denied"):
        body = {"verdict": verdict, "revision": 1, **binding(shown.view)}
        path, headers = f"/v1/approvals/{shown.view['id']}/decide", {"idempotency-key": "k" * 200}
        receipt = (await site.person("ana").http.post(path, json=body, headers=headers)).json()
    assert (receipt["status"], receipt["code"], receipt["state"]) == ("accepted", "duplicate", "denied")


async def by_link(site: AttackSite, shown: Shown) -> None:
    async with open_store(site.stores.gateway) as store:
        key = await store.secret_key(LINK_KEY)
    expires = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    path = f"/link/{make_link(key, ApprovalLink(approval=shown.view['id'], revision=1, person='ana', expires=expires))}"
    async with httpx2.AsyncClient(base_url=site.url, headers={"sec-fetch-site": "same-origin"}, timeout=60) as http:
        fields = form_fields((await http.get(path)).text, path)
        for verdict in ("approved", "denied"):
            await http.post(path, data={**fields, "verdict": verdict})


@pytest.mark.parametrize(("door", "tool"), [(by_page, "wire"), (by_key, "wire"), (by_link, "mailed")])
async def test_denial_after_ones_own_approval_counts(site: AttackSite, door: Any, tool: str) -> None:
    # Ana, one of two approvers, approves and denies by the same form, key or link. The call is denied: Bo is too late.
    # Before the fix her receipt confirmed the denial, her approval remained, and with Bo's 400 was paid.
    to, bo = payee(), site.person("bo")
    key, shown = await asked(site, tool, to)
    await door(site, shown)
    late = (await bo.decide(await bo.see(approval_id(key)))).json()
    result = await site.person("rui").result(key)
    assert (late["status"], late["state"], result["calls"][0]["code"], site.amounts(to)) == (
        "refused",
        "denied",
        "denied",
        [],
    )


async def test_repeated_approval_counts_as_one_vote(site: AttackSite) -> None:
    # Ana's client sends the same approval twice: it is one vote of two. Without `_find_repeated` in
    # `DecisionService._write`, the one vote per person in `machine.counted` and the unique index of deliveries in the
    # store (three layers of one defence) it counted as two votes.
    to, ana = payee(), site.person("ana")
    _, shown = await asked(site, "wire", to)
    for _ in range(2):
        body = {"verdict": "approved", "revision": 1, **binding(shown.view)}
        path, headers = f"/v1/approvals/{shown.view['id']}/decide", {"idempotency-key": "again"}
        receipt = (await ana.http.post(path, json=body, headers=headers)).json()
    assert (receipt["status"], receipt["code"], receipt["votes"], site.amounts(to)) == ("counted", "duplicate", 1, [])
