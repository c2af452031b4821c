import json
import re

from attack_site import AttackSite, Shown, approval_id, payee, until
from impostor import ForgedTurn, Impostor, forged_view

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace

SMALL, LARGE = 9, 9_400


def says_large(words: str) -> bool:
    return re.search(rf"(?<![\w-])(?:{LARGE}|{LARGE:,})(?![\w-])", words) is not None


async def bound_to_large(site: AttackSite, impostor: Impostor, to: str) -> tuple[ForgedTurn, CallContext]:
    """The turn shows the same card for 9 EUR, but names the digest of 9,400 EUR."""
    key = await site.person("rui").ask([("pay", {"amount": SMALL, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    large = impostor.digest(ctx, "pay", {"amount": LARGE, "to": to})

    def change(request: ApprovalRequest) -> ApprovalRequest:
        return replace(request, digest=large)

    return await impostor.take_over(key, **{names.STATE: forged_view(view, change)}), ctx


async def run_large(forged: ForgedTurn, ctx: CallContext, to: str) -> None:
    args = {"amount": LARGE, "to": to}
    given = [each for each in await forged.decisions() if each.verdict == "approved"]
    await forged.run("pay", args, forged.impostor.claim(ctx, forged.impostor.digest(ctx, "pay", args), given))


async def test_api_approval_runs_only_the_shown_call(site: AttackSite, impostor: Impostor) -> None:
    # The approver's view shows 9 EUR, but its digest belongs to 9,400 EUR: the signed answer must not pay that.
    # Without `question.digest != digest` in `standing` 9,400 EUR were paid.
    to, ana = payee(), site.person("ana")
    forged, ctx = await bound_to_large(site, impostor, to)
    shown = await ana.waiting(approval_id(forged.key))
    assert (f"Pay {SMALL} EUR to {to}" in shown.words, says_large(shown.words)) == (True, False)
    await ana.decide(shown)
    await run_large(forged, ctx, to)
    assert LARGE not in site.amounts(to)


async def test_page_approval_runs_only_the_shown_call(site: AttackSite, impostor: Impostor) -> None:
    # The same through the card's form. Without `question.digest != digest` in `standing` 9,400 EUR were paid.
    to, bo = payee(), await site.browser("bo")
    forged, ctx = await bound_to_large(site, impostor, to)
    shown, fields = await bo.open(approval_id(forged.key))
    assert (f"Pay {SMALL} EUR to {to}" in shown.words, says_large(shown.words)) == (True, False)
    await bo.send(approval_id(forged.key), fields)
    await run_large(forged, ctx, to)
    assert LARGE not in site.amounts(to)


async def test_workflow_cannot_change_the_text_of_a_question(site: AttackSite, impostor: Impostor) -> None:
    # A turn that asked about 9,400 EUR is taken over and claims 9 EUR in its query and memo: no view, page or list
    # shows 9 EUR. With the card from the turn's own query, view and page (in `Conversations.loaded`) and the list (in
    # `list_approvals`) showed 9 EUR.
    to, ana, bo = payee(), site.person("ana"), await site.browser("bo")
    key = await site.person("rui").ask([("pay", {"amount": LARGE, "to": to})])
    approval = approval_id(key)
    await ana.waiting(approval)
    view = await impostor.view(key)
    memo = await (await site.client.get_workflow_handle(key.workflow_id).describe()).memo()

    def change(request: ApprovalRequest) -> ApprovalRequest:
        return replace(
            request,
            card=ApprovalRequest.model_validate_json(smaller(request.model_dump_json())).card,
            args=Content(inline={"amount": SMALL, "to": to}),
        )

    def smaller(text: str) -> str:
        return text.replace(str(LARGE), str(SMALL)).replace("9,400", str(SMALL))

    forged = {names.STATE: forged_view(view, change), "memo": json.loads(smaller(json.dumps(memo)))}
    await impostor.take_over(key, **forged)

    async def listed() -> Shown | None:
        found = await ana.http.get("/v1/approvals", params={"mine": "true", "limit": "1000"})
        cards = [card for card in found.json()["approvals"] if card["id"] == approval]
        return Shown(found.status_code, json.dumps(cards)) if cards else None

    seen = [(await ana.see(approval)), (await bo.open(approval))[0], await until(listed)]
    # Search with the payee: the page also lists other waiting requests.
    assert [f"Pay {SMALL} EUR to {to}" in shown.words for shown in seen] == [False, False, False]
    assert [to in shown.words and shown.status == 200 for shown in seen] == [True, True, True]


async def test_question_forged_by_a_turn_is_not_found(site: AttackSite, impostor: Impostor) -> None:
    # A forged turn that claims a request replaces a turn without one: the API and the page answer 404. With the
    # turn's own query believed in `Conversations.loaded` where the store has no row, both answered 200 and showed it.
    to, ana, bo = payee(), site.person("ana"), await site.browser("bo")
    rui = site.person("rui")
    key, other = await rui.ask([]), await rui.ask([("pay", {"amount": SMALL, "to": to})])
    await rui.result(key)
    await ana.waiting(approval_id(other))
    ctx, view = await impostor.ctx(key), await impostor.view(other)
    args = {"amount": SMALL, "to": to}
    digest = impostor.digest(ctx, "pay", args)

    def change(request: ApprovalRequest) -> ApprovalRequest:
        return replace(request, id=approval_id(key), session=key.session, turn=key.turn, digest=digest)

    claimed = replace(forged_view(view, change), session=key.session, turn=key.turn)
    forged = await impostor.take_over(key, **{names.STATE: claimed})
    approval = approval_id(key)
    statuses = ((await ana.see(approval)).status, (await bo.open(approval))[0].status)
    await ana.http.post(f"/v1/approvals/{approval}/decide", json={"verdict": "approved", "digest": digest})
    await forged.run("pay", args, impostor.claim(ctx, digest, await forged.decisions()))
    assert site.amounts(to) == []
    assert statuses == (404, 404)


async def test_arguments_other_than_the_approved_ones_do_not_run(site: AttackSite, impostor: Impostor) -> None:
    # A genuine answer about 9 EUR pays neither 9,400 EUR nor another payee, for any digest in the permit. Without
    # `question.digest != digest` in `standing` 9,400 EUR were paid by a permit with their digest.
    to, other, ana = payee(), payee(), site.person("ana")
    key: TurnKey = await site.person("rui").ask([("pay", {"amount": SMALL, "to": to})])
    shown = await ana.waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{names.STATE: view})
    await ana.decide(shown)
    given = await forged.decisions()
    asked = impostor.digest(ctx, "pay", {"amount": SMALL, "to": to})
    for args in ({"amount": LARGE, "to": to}, {"amount": SMALL, "to": other}):
        for digest in (asked, impostor.digest(ctx, "pay", args)):
            reply = await forged.run("pay", args, impostor.claim(ctx, digest, given))
            assert reply.outcome is None or reply.outcome.code != "ok"
    assert (site.amounts(to), site.amounts(other)) == ([], [])
