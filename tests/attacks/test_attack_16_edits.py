import re

from attack_site import AttackSite, approval_id, payee

LARGE = 49_999


async def test_edit_without_an_edit_policy_is_refused_over_the_api(site: AttackSite) -> None:
    # Without an edit policy, 5 EUR to a payee do not become 49,999 EUR to the approver. With
    # `ApprovalPolicy.edit_mode` defaulting to `approve` 49,999 EUR were paid.
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


async def test_card_without_an_edit_policy_offers_no_edit(site: AttackSite) -> None:
    # Without an edit policy, the page of a tool with side effects offers no edit. With `ApprovalPolicy.edit_mode`
    # defaulting to `approve` it did.
    key = await site.person("rui").ask([("pay", {"amount": 5, "to": payee()})])
    await site.person("ana").waiting(approval_id(key))
    page = await (await site.browser("ana")).http.get(f"/approvals/{approval_id(key)}")
    assert page.status_code == 200
    assert re.search(r'href="[^"]*/edit"', page.text) is None
