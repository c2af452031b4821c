from typing import Any

import pytest
from attack_site import AttackSite, approval_id, payee, receipt, until, words
from begun_again import begun_again
from impostor import ForgedTurn, Impostor
from test_attack_claimed_runs import claimed, with_calls

from signoff.contracts import names
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnView
from signoff.formats.replace import replace

pytestmark = pytest.mark.timeout(300)


def refused(key: TurnKey) -> dict[str, Any]:
    return Receipt(status="refused", code="stale", approval_id=approval_id(key)).model_dump(mode="json")


def waiting(view: TurnView) -> dict[str, Any]:
    [call] = view.calls
    assert call.approval is not None
    request = replace(call.approval, state="pending")
    return with_calls(view, replace(call, state="waiting", approval=request), result=None)


async def handed_once_more(site: AttackSite, forged: ForgedTurn) -> None:
    """A reader of a waiting turn triggers this."""

    async def has_decisions() -> bool:
        await site.person("rui").http.get(f"/v1/turns/{'.'.join(forged.key)}")
        return bool(await forged.decisions())

    await until(has_decisions)


async def page_of(site: AttackSite, key: TurnKey) -> str:
    return words((await (await site.browser("rui")).http.get(f"/turns/{'.'.join(key)}")).text)


async def test_approval_that_ran_cannot_be_voided(site: AttackSite, impostor: Impostor) -> None:
    # Ana's approval has paid. The turn, started again, claims to wait and refuses her approval: it stays, and no
    # approver can deny. With `has_begun` removed from `Questions.void` the request waited again without a vote; before
    # the fix Bo's denial was accepted, and the page showed "Ran, approved by Bo Berg" for the call he had denied.
    to, ana, bo = payee(), site.person("ana"), site.person("bo")
    key = await site.person("rui").ask([("pay", {"amount": 400, "to": to})])
    assert (await ana.approve(approval_id(key)))["status"] == "accepted"
    await site.person("rui").result(key)
    view = await impostor.view(key)
    forged = await begun_again(impostor, key, **{names.STATE: waiting(view), names.DECIDE: refused(key)})
    await handed_once_more(site, forged)
    await handed_once_more(site, forged)
    reply = receipt(await bo.decide(await bo.see(approval_id(key)), "denied", reason="never"))
    seen = (await bo.see(approval_id(key))).view
    assert (reply["status"], seen["state"], [each["subject"] for each in seen["votes"]]) == (
        "refused",
        "approved",
        ["ana"],
    )
    await forged.forge(**{names.STATE: view.model_dump(mode="json")})
    page = await page_of(site, key)
    assert ("Ran, approved by Ana" in page, "Bo Berg" in page, site.amounts(to)) == (True, False, [400])


async def test_unstored_approval_runs_nothing_despite_accept_unsigned(site: AttackSite, impostor: Impostor) -> None:
    to, bo = payee(), site.person("bo")
    args = {"amount": 400, "to": to}
    key = await site.person("rui").ask([("petty", args)])
    shown, ctx, view = await bo.waiting(approval_id(key)), await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key)
    raw = Decision(
        approval_id=approval_id(key),
        revision=1,
        question_hash=shown.view["question_hash"],
        verdict="approved",
        subject="ana",
    )
    claim = impostor.claim(ctx, impostor.digest(ctx, "petty", args), [raw], tool="petty", revision=1)
    await forged.run("petty", args, claim)
    response = await bo.decide(shown, "denied", reason="never")
    assert (response.status_code, site.amounts(to)) == (200, [])
    ran = claimed("c1.1", tool="petty", decided_by="bo", approval_id=approval_id(key))
    await forged.forge(**{names.STATE: with_calls(view, replace(view.calls[0], state="ok", outcome=ran))})
    page = await page_of(site, key)
    assert ("approved by Bo" in page, "Ran" in page) == (False, False)


async def test_author_of_a_void_answer_is_not_credited(site: AttackSite, impostor: Impostor) -> None:
    # Ana's approval was refused and is void, Bo's has paid. The turn claims that Ana's did, and earlier that it was a
    # dry run. With every row in `CallProof._people` the API named Ana as decider; with a turn's claim of a dry run in
    # `CallProof._is_done` it returned `ok` before anything had run.
    to, rui, ana, bo = payee(), site.person("rui"), site.person("ana"), site.person("bo")
    args = {"amount": 400, "to": to}
    tried = await rui.result(await rui.ask([("pay", args)], dry_run=True))
    assert [(each["code"], each["gate"]) for each in tried["calls"]] == [("ok", "dry_run")]
    key = await rui.ask([("pay", args)])
    shown, ctx, view = await ana.waiting(approval_id(key)), await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{names.DECIDE: refused(key)})
    assert receipt(await ana.decide(shown))["status"] == "refused"
    taken = Receipt(status="accepted", approval_id=approval_id(key)).model_dump(mode="json")
    [call] = view.calls
    dry = replace(claimed("c1.1", decided_by="ana"), gate="dry_run")
    lie = with_calls(view, replace(call, state="ok", outcome=dry))
    await forged.forge(**{names.DECIDE: taken, names.STATE: lie})
    assert receipt(await bo.decide(await bo.see(approval_id(key))))["status"] == "accepted"
    found = (await rui.turn(key))["calls"][0]["outcome"]
    assert (found["code"], found["decided_by"], site.amounts(to)) == ("in_doubt", "", [])
    await forged.run("pay", args, impostor.claim(ctx, impostor.digest(ctx, "pay", args), []))
    assert site.amounts(to) == [400]
    credited = []
    for who in ("ana", "bo"):
        paid = claimed("c1.1", decided_by=who, approval_id=approval_id(key))
        await forged.forge(**{names.STATE: with_calls(view, replace(call, state="ok", outcome=paid))})
        credited.append((await rui.turn(key))["calls"][0]["outcome"]["decided_by"])
    assert credited == ["", "bo"]


async def test_refused_approval_can_be_given_again(site: AttackSite, impostor: Impostor) -> None:
    # A turn refuses Ana's approval, which is void; sent again under the same key, as by a link, it counts once. With
    # `answer.void` removed from `decisions._told_apart` her second receipt reported it as counted, although it was
    # void and never counted.
    to, ana = payee(), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": 400, "to": to})])
    shown = await ana.waiting(approval_id(key))
    ana.http.headers["idempotency-key"] = "one"
    forged = await impostor.take_over(key, **{names.DECIDE: refused(key)})
    entries = [receipt(await ana.decide(shown))["status"] for _ in range(2)]
    taken = Receipt(status="accepted", approval_id=approval_id(key)).model_dump(mode="json")
    await forged.forge(**{names.DECIDE: taken})
    entries += [receipt(await ana.decide(shown))[name] for name in ("status", "code")]
    seen = (await ana.see(approval_id(key))).view
    assert entries == ["refused", "refused", "accepted", "duplicate"]
    assert (seen["state"], [each["subject"] for each in seen["votes"]]) == ("approved", ["ana"])
