from attack_site import AttackSite, approval_id, payee
from impostor import Impostor

from signoff.contracts import names
from signoff.contracts.call import PERMISSION_RULE
from signoff.registry.hooks import override_hash

OBJECTION = "no refunds to this address at present"


async def test_override_that_was_not_shown_runs_nothing(site: AttackSite, impostor: Impostor) -> None:
    # Ana approved a refund without an objection; then the check objects. The permit's claim of an override, with the
    # right hash, is worthless. With `_overrides` always true 9 EUR were paid.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    key = await site.person("rui").ask([("refund", args)])
    shown = await ana.waiting(approval_id(key))
    assert OBJECTION not in shown.words
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{names.STATE: view})
    assert (await ana.decide(shown)).status_code in (200, 202)
    (site.folder / f"no-{to}").touch()
    claim = impostor.claim(
        ctx,
        impostor.digest(ctx, "refund", args),
        await forged.decisions(),
        tool="refund",
        rule=PERMISSION_RULE,
        override=override_hash(OBJECTION),
    )
    reply = await forged.run("refund", args, claim)
    assert (site.amounts(to), reply.outcome is None or reply.outcome.code != "ok") == ([], True)


async def test_override_that_was_shown_and_approved_runs(site: AttackSite) -> None:
    # Ana sees the objection on the card, and her approval runs the call. With `_overrides` accepting no shown
    # objection the approved call did not run.
    to, ana, rui = payee(), site.person("ana"), site.person("rui")
    (site.folder / f"no-{to}").touch()
    key = await rui.ask([("refund", {"amount": 9, "to": to})])
    shown = await ana.waiting(approval_id(key))
    assert OBJECTION in shown.words
    assert (await ana.decide(shown)).status_code == 200
    assert (await rui.result(key))["calls"][0]["code"] == "ok"
    assert site.amounts(to) == [9]
