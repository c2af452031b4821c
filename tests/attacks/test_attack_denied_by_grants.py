import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.testing.builders import a_run_task


async def remembered(site: AttackSite, to: str) -> str:
    max_, bo = site.person("max"), site.person("bo")
    key = await max_.ask([("gift", {"amount": 6, "to": to})])
    remember = {"scope": "tenant", "where": f"args.to == '{to}'", "uses": 10}
    assert (await bo.approve(approval_id(key), remember=remember))["status"] == "accepted"
    await max_.result(key)
    grants = (await bo.http.get("/v1/grants")).json()["grants"]
    return next(str(each["id"]) for each in grants if to in str(each))


@pytest.mark.parametrize("call", ["c1.1", "c2.1"])
async def test_denied_call_runs_by_no_grant(call: str, site: AttackSite, impostor: Impostor) -> None:
    # Ana denies Rui's gift, and Bo's grant covers Max's. An impostor of Rui's turn runs the denied gift by it, or
    # repeats it. Without the check of the turn's stored questions the 5 were given, and the card showed "Denied by
    # Ana".
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    args = {"amount": 5, "to": to}
    key = await rui.ask([("gift", args)])
    denied = await ana.decide(await ana.waiting(approval_id(key)), "denied", reason="never to them")
    assert denied.json()["state"] == "denied"
    await rui.result(key)
    grant = await remembered(site, to)
    ctx = await impostor.ctx(key)
    forged = await impostor.stand(key)
    gate_decision = await forged.gate(ctx, "gift", args, call=call)
    assert (gate_decision.kind, gate_decision.outcome and gate_decision.outcome.code) == ("settled", "denied")
    digest = impostor.digest(ctx, "gift", args, call)
    reply = await forged.run("gift", args, a_run_task(call=call, digest=digest, ctx=ctx, grant=grant))
    assert site.amounts(to) == [6]
    assert reply.outcome is not None
    assert reply.outcome.code == "refused"


async def test_waiting_call_runs_by_no_grant(site: AttackSite, impostor: Impostor) -> None:
    # Ana's request waits when Bo creates a grant for other gifts: the waiting call stays hers to decide. With
    # `RunRights.holds` always true the 5 were given while Ana's request waited.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    args = {"amount": 5, "to": to}
    key = await rui.ask([("gift", args)])
    shown = await ana.waiting(approval_id(key))
    grant = await remembered(site, to)
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{"state": view})
    claim = a_run_task(digest=impostor.digest(ctx, "gift", args), ctx=ctx, grant=grant)
    reply = await forged.run("gift", args, claim)
    assert (reply.again, site.amounts(to)) == ("stale", [6])
    assert (await ana.decide(shown, "denied")).json()["state"] == "denied"
