from typing import Any

import pytest
from attack_site import AttackSite, Shown, approval_id, payee, receipt, until
from impostor import ForgedTurn, Impostor

from signoff.contracts import names
from signoff.contracts.activity_messages import GateReply, GateTask
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.receipt import Receipt

pytestmark = pytest.mark.timeout(300)
ASKED, LARGE = 400, 4_000


async def ask_gates(forged: ForgedTurn, ctx: CallContext, tool: str, args: dict[str, Any], edit: int) -> GateReply:
    task = GateTask(ctx=ctx, calls=(CallPart(call="c1.1", tool=tool, args=Content(inline=args)),), edit=edit)
    return GateReply.model_validate(await forged.schedule(names.GATE, f"g-{payee()}", task))


@pytest.mark.parametrize("meanwhile", ["denied by its author", "denied by another", "withdrawn", "corrected"])
async def test_later_answer_overrides_a_waiting_edit(meanwhile: str, site: AttackSite) -> None:
    # Edited while no worker runs, then denied, withdrawn or corrected: the returning worker pays the last state. There
    # is no attacker here. Without `edit_stands` 4,000 EUR were paid every time.
    to, rui, ana, bo = payee(), site.person("rui"), site.person("ana"), site.person("bo")
    key = await rui.ask([("petty", {"amount": ASKED, "to": to})])
    shown = await ana.waiting(approval_id(key))
    async with site.without("worker"):
        first = await ana.decide(shown, edited_args={"amount": LARGE, "to": to})
        assert receipt(first)["status"] == "pending"
        if meanwhile == "withdrawn":
            then = await rui.http.post(f"/v1/approvals/{approval_id(key)}/withdraw", json={"reason": "a mistake"})
        elif meanwhile == "corrected":
            then = await ana.decide(shown, edited_args={"amount": 40, "to": to})
        else:
            then = await (ana if meanwhile == "denied by its author" else bo).decide(shown, "denied", reason="never")
        assert then.status_code < 400, then.text
    await rui.result(key)
    assert site.amounts(to) == ([40] if meanwhile == "corrected" else [])


async def test_denied_edit_is_not_asked_again_with_its_authors_approval(site: AttackSite, impostor: Impostor) -> None:
    # Ana edits a wire of two approvers, Bo denies the result, and the turn has her edit judged again. Without the
    # comparison of `edit_delivery` in `Questions.ask` it was asked as a third revision with her approval, and one more
    # paid 4,000 EUR.
    to, large = payee(), {"amount": LARGE, "to": ""}
    large["to"] = to
    rui, ana, bo = site.person("rui"), site.person("ana"), site.person("bo")
    key = await rui.ask([("wire", {"amount": ASKED, "to": to})])
    shown, ctx = await ana.waiting(approval_id(key)), await impostor.ctx(key)
    await ana.decide(shown, edited_args=large)

    async def second() -> Shown | None:
        seen = await bo.see(approval_id(key))
        return seen if seen.view.get("revision") == 2 else None

    assert receipt(await bo.decide(await until(second), "denied", reason="too much"))["state"] == "denied"
    await rui.result(key)
    change = next(each.number for each in await impostor.answers(key) if each.vote.decision.edited_args is not None)
    forged = await impostor.stand(key)
    await ask_gates(forged, ctx, "wire", large, change)
    after = await bo.see(approval_id(key))
    assert (after.view["revision"], after.view["state"]) == (2, "denied")


async def test_edit_held_back_by_a_turn_is_worthless_after_a_denial(site: AttackSite, impostor: Impostor) -> None:
    # A taken-over turn keeps an edit and has it judged after its author denied the call. Without `edit_stands` the
    # gates accepted it with its author's approval: 4,000 EUR were paid.
    to, ana = payee(), site.person("ana")
    large = {"amount": LARGE, "to": to}
    key = await site.person("rui").ask([("petty", {"amount": ASKED, "to": to})])
    shown, ctx = await ana.waiting(approval_id(key)), await impostor.ctx(key)
    forged = await impostor.take_over(key)
    await ana.decide(shown, edited_args=large)
    denied = await ana.decide(shown, "denied", reason="no, stop that")
    assert receipt(denied)["state"] == "denied"
    edit = next(each for each in await impostor.answers(key) if each.vote.decision.edited_args is not None)
    kept = edit.vote.decision
    await ask_gates(forged, ctx, "petty", large, edit.number)
    after = await ana.see(approval_id(key))
    assert (after.view["revision"], after.view["state"]) == (1, "denied")
    digest = impostor.digest(ctx, "petty", large)
    await forged.run("petty", large, impostor.claim(ctx, digest, [kept], tool="petty", revision=2))
    assert site.ledger(to) == []


async def test_approval_refused_by_a_turn_is_void_and_names_no_decider(site: AttackSite, impostor: Impostor) -> None:
    # A turn claims to an approver that another one denied the call: the receipt is the gateway's, and true. Before the
    # fix the approver read `denied by Bo Berg`, and the call ran on the approval.
    to, ana = payee(), site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": ASKED, "to": to})])
    shown, ctx = await ana.waiting(approval_id(key)), await impostor.ctx(key)
    forged = await impostor.take_over(key)
    lie = {"decided_by": "bo", "decided_name": "Bo Berg", "message": "denied by Bo Berg", "state": "denied"}
    answer_receipt = Receipt(status="refused", code="already_decided", approval_id=approval_id(key), **lie)
    await forged.forge(**{names.DECIDE: answer_receipt.model_dump(mode="json")})
    answer = await ana.decide(shown)
    assert "Bo" not in answer.text
    assert (receipt(answer)["status"], (await ana.see(approval_id(key))).view["state"]) == ("refused", "pending")
    digest = impostor.digest(ctx, "pay", {"amount": ASKED, "to": to})
    await forged.run("pay", {"amount": ASKED, "to": to}, impostor.claim(ctx, digest, await forged.decisions()))
    assert site.ledger(to) == []


async def test_answer_is_stored_although_its_turn_replies_nonsense(site: AttackSite, impostor: Impostor) -> None:
    # A turn's reply to an answer is unreadable: the answer is stored and recorded without that reply. Without the
    # catch in `AnswerHandover._wake` the approver got an error, and the dispatcher retried that answer before
    # all others. Without the entry in its transaction the audit log lacked it.
    ana = site.person("ana")
    key = await site.person("rui").ask([("pay", {"amount": ASKED, "to": payee()})])
    shown = await ana.waiting(approval_id(key))
    forged = await impostor.take_over(key)
    await forged.forge(**{names.DECIDE: {"status": "as you like"}})
    answer = await ana.decide(shown, "denied", reason="never")
    assert (receipt(answer)["status"], (await ana.see(approval_id(key))).view["state"]) == ("accepted", "denied")
    found = [each for each in await site.person("aud").record(key) if each["kind"] == "attempt"]
    assert [(each["subject"], each["data"]["verdict"], each["data"].get("by")) for each in found] == [
        ("ana", "denied", None)
    ]
