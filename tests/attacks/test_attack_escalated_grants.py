from typing import Any

from attack_site import AttackSite, Shown, approval_id, payee, until


async def test_escalation_approver_cannot_create_a_grant(site: AttackSite) -> None:
    # Mal answers one escalated payment of 1 and wants a grant for all of them: Max's payment of 999,999 still asks
    # approvers. Without both fixes, the gateway's and the seats of new calls, which come from the policy alone
    # (`test_escalation_only_approver_gives_no_grant`), the 999,999 were paid at once.
    to, rui, max_, mal = payee(), site.person("rui"), site.person("max"), site.person("mal")
    first = await rui.ask([("climb", {"amount": 1, "to": to})])

    async def passed_on() -> Shown | None:
        shown = await mal.see(approval_id(first))
        return shown if shown.view.get("escalated") else None

    remember = {"scope": "tenant", "where": f"args.to == '{to}'", "uses": 100}
    shown = await until(passed_on)
    refused = await mal.decide(shown, remember=remember)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    answer = await mal.decide(shown)
    assert answer.json()["state"] == "approved"
    await rui.result(first)
    second = await max_.ask([("climb", {"amount": 999_999, "to": to})])

    async def asked_or_over() -> Any:
        return (await max_.turn(second)).get("result") or (await site.person("ana").see(approval_id(second))).view

    await until(asked_or_over)
    assert site.amounts(to) == [1]
