"""Between view and tap another call replaces the shown one, under the same short mark."""

import pytest
from attack_site import AttackSite, approval_id, payee
from impostor import ForgedTurn, Impostor, forged_view

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.turn import TurnView
from signoff.formats.replace import replace

SMALL, LARGE = 9, 9_400


async def stands_for(site: AttackSite, impostor: Impostor, to: str) -> tuple[ForgedTurn, CallContext, TurnView]:
    key = await site.person("rui").ask([("pay", {"amount": SMALL, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    return await impostor.take_over(key, **{names.STATE: view}), ctx, view


async def swap(forged: ForgedTurn, ctx: CallContext, view: TurnView, to: str) -> None:
    args = {"amount": LARGE, "to": to}
    digest = forged.impostor.digest(ctx, "pay", args)

    def change(request: ApprovalRequest) -> ApprovalRequest:
        card = ApprovalRequest.model_validate_json(
            request.model_dump_json().replace(f"Pay {SMALL} EUR", f"Pay {LARGE} EUR")
        ).card
        return replace(request, digest=digest, card=card, args=Content(inline=args))

    await forged.forge(**{names.STATE: forged_view(view, change)})


async def run_large(forged: ForgedTurn, ctx: CallContext, to: str) -> None:
    args = {"amount": LARGE, "to": to}
    claim = forged.impostor.claim(ctx, forged.impostor.digest(ctx, "pay", args), await forged.decisions())
    await forged.run("pay", args, claim)


async def test_page_answer_counts_only_for_the_shown_question(site: AttackSite, impostor: Impostor) -> None:
    # Bo opened the card of 9 EUR: his tap does not approve the 9,400 EUR that replaced it. Without the comparison of
    # the question's digest with the call's in `standing` 9,400 EUR was paid.
    to, bo = payee(), await site.browser("bo")
    forged, ctx, view = await stands_for(site, impostor, to)
    shown, fields = await bo.open(approval_id(forged.key))
    assert f"Pay {SMALL} EUR to {to}" in shown.words
    await swap(forged, ctx, view, to)
    await bo.send(approval_id(forged.key), fields)
    await run_large(forged, ctx, to)
    assert LARGE not in site.amounts(to)


async def test_api_answer_counts_only_for_the_read_question(site: AttackSite, impostor: Impostor) -> None:
    # Ana read 9 EUR over the API: her approval, bound to that view, does not cover 9,400 EUR. Without the comparison
    # of the question's digest with the call's in `standing` 9,400 EUR was paid.
    to, ana = payee(), site.person("ana")
    forged, ctx, view = await stands_for(site, impostor, to)
    shown = await ana.waiting(approval_id(forged.key))
    await swap(forged, ctx, view, to)
    await ana.decide(shown)
    await run_large(forged, ctx, to)
    assert LARGE not in site.amounts(to)


@pytest.mark.parametrize("field", ["digest", "question_hash"])
async def test_short_mark_binds_no_answer_over_the_api(field: str, site: AttackSite, impostor: Impostor) -> None:
    # The eight characters for comparison by eye, sent as the binding of an answer, approve nothing. With any
    # `question_hash` accepted in `gateway/approvals/decision_service.py`, or with unknown fields and no hash accepted,
    # the answer was accepted.
    to, ana = payee(), site.person("ana")
    forged, ctx, view = await stands_for(site, impostor, to)
    shown = await ana.waiting(approval_id(forged.key))
    mark = next(call.approval.card.mark for call in view.calls if call.approval is not None)
    await swap(forged, ctx, view, to)
    body = {"verdict": "approved", "revision": shown.view["revision"], field: mark}
    answer = await ana.http.post(f"/v1/approvals/{approval_id(forged.key)}/decide", json=body)
    await run_large(forged, ctx, to)
    assert (answer.status_code >= 400, site.amounts(to)) == (True, [])
