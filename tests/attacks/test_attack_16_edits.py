"""Attack 16: one approver rewrites a small call into a large one to themselves, and nobody else is asked."""

import re

from attack_site import AttackSite, approval_id, payee

LARGE = 49_999


async def test_one_approver_alone_rewrites_nothing_over_the_api(site: AttackSite) -> None:
    # Where the policy says nothing of edits, 5 EUR to somebody do not become 49,999 EUR to the approver. With
    # `ApprovalPolicy.edit_mode` giving `approve` where nothing is said 49,999 EUR were paid.
    to = payee()
    own = f"{to}, account of Ana"
    ana = site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 5, "to": to})])
    shown = await ana.waiting(approval_id(key))
    answer = await ana.decide(shown, edited_args={"amount": LARGE, "to": own})
    if answer.json().get("status") == "accepted":
        await site.person("rui").result(key)
    after = await ana.see(approval_id(key))
    assert (site.amounts(own), after.view["state"]) == ([], "pending")


async def test_the_card_offers_no_edit_that_nobody_declared(site: AttackSite) -> None:
    # Where the policy says nothing of edits, the page of a tool with side effects leads to none. With
    # `ApprovalPolicy.edit_mode` giving `approve` where nothing is said the page led to one.
    key = await site.person("rui").ask([("pay", {"amount": 5, "to": payee()})])
    await site.person("ana").waiting(approval_id(key))
    page = await (await site.browser("ana")).http.get(f"/approvals/{approval_id(key)}")
    assert page.status_code == 200
    assert re.search(r'href="[^"]*/edit"', page.text) is None
