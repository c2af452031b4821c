"""The attackers of this directory have their claimed abilities: a refusal is not a broken attack."""

from attack_site import AttackSite, approval_id, payee
from impostor import Impostor, forged_view

from signoff.contracts import names


async def test_honest_turn_runs_the_approved_calls(site: AttackSite) -> None:
    to = payee()
    rui, ana, bo = site.person("rui"), site.person("ana"), await site.browser("bo")
    first = await rui.ask([("pay", {"amount": 7, "to": to})])
    assert (await ana.approve(approval_id(first)))["status"] == "accepted"
    assert (await rui.result(first))["calls"][0]["code"] == "ok"
    second = await rui.ask([("pay", {"amount": 8, "to": to})])
    await ana.waiting(approval_id(second))
    shown, fields = await bo.open(approval_id(second))
    assert f"Pay 8 EUR to {to}" in shown.words
    assert (await bo.send(approval_id(second), fields)).status_code == 303
    assert (await rui.result(second))["calls"][0]["code"] == "ok"
    assert site.amounts(to) == [7, 8]


async def test_impostor_reaches_the_tool_with_an_approved_permit(site: AttackSite, impostor: Impostor) -> None:
    to = payee()
    args = {"amount": 9, "to": to}
    rui, ana = site.person("rui"), site.person("ana")
    key = await rui.ask([("pay", args)])
    shown = await ana.waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{names.STATE: forged_view(view, lambda request: request)})
    assert (await ana.decide(shown)).status_code == 200
    [decision] = await forged.decisions()
    assert (decision.subject, decision.signature != "") == ("ana", True)
    reply = await forged.run("pay", args, impostor.claim(ctx, impostor.digest(ctx, "pay", args), [decision]))
    assert reply.outcome is not None
    assert (reply.outcome.code, site.amounts(to)) == ("ok", [9])
