from datetime import UTC, datetime, timedelta

import pytest
from attack_site import AttackSite, approval_id, passed, payee, receipt
from impostor import Impostor, forged_view

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.ids import TurnKey
from signoff.formats.replace import replace


async def run_with_copies(site: AttackSite, impostor: Impostor, key: TurnKey, tool: str, to: str) -> None:
    args, ctx = {"amount": 9, "to": to}, await impostor.ctx(key)
    given = [each for each in await impostor.decisions(key) if each.verdict == "approved"]
    call = approval_id(key)
    copies = [each for each in given if each.approval_id == call and each.edited_args is None]
    forged = await impostor.take_over(key)
    quorum = 2 if tool == "wire" else 1
    claim = impostor.claim(ctx, impostor.digest(ctx, tool, args), copies, tool=tool, quorum=quorum)
    await forged.run(tool, args, claim)


@pytest.mark.parametrize("end", ["denied", "withdrawn"])
@pytest.mark.parametrize("tool", ["pay", "wire"])
async def test_approval_of_a_denied_or_withdrawn_request_runs_nothing(
    tool: str, end: str, site: AttackSite, impostor: Impostor
) -> None:
    # One of several approvers denies, or the requester withdraws. Earlier and later approvals run nothing. Without the
    # checks of the request's state in `objection` and `counted` the late approval was signed, and without the one in
    # `approval_of` as well 9 EUR were paid.
    to, rui = payee(), site.person("rui")
    key = await rui.ask([(tool, {"amount": 9, "to": to})], [("pay", {"amount": 1, "to": to})])
    approval = approval_id(key)
    ana, bo, cy = (site.person(name) for name in ("ana", "bo", "cy"))
    shown = await cy.waiting(approval)
    if tool == "wire":
        assert (await ana.approve(approval))["status"] == "counted"
    if end == "denied":
        assert receipt(await bo.decide(shown, "denied", reason="no"))["status"] == "accepted"
    else:
        assert (await rui.http.post(f"/v1/approvals/{approval}/withdraw", json={})).status_code == 200
    late = receipt(await cy.decide(shown))
    assert (late["status"], late["code"]) == ("refused", "already_decided" if end == "denied" else "cancelled")
    # The turn still runs: its second call waits.
    await ana.waiting(approval_id(key, "c2.1"))
    await run_with_copies(site, impostor, key, tool, to)
    assert site.amounts(to) == []


async def test_stale_approval_of_an_edited_request_runs_nothing(site: AttackSite, impostor: Impostor) -> None:
    # Ana approves 9 EUR, Bo edits the amount to 8, and Cy, still looking at 9, approves: nothing pays 9. Without the
    # comparisons in `deciding._decision` and `_names_this`, two layers of one defence, the late approval was signed.
    to = payee()
    key = await site.person("rui").ask([("wire", {"amount": 9, "to": to})])
    approval = approval_id(key)
    ana, bo, cy = (site.person(name) for name in ("ana", "bo", "cy"))
    shown = await cy.waiting(approval)
    assert (await ana.approve(approval))["status"] == "counted"
    edited = receipt(await bo.decide(shown, edited_args={"amount": 8, "to": to}))
    assert edited["status"] == "counted", edited
    late = receipt(await cy.decide(shown))
    assert (late["status"], late["code"]) == ("refused", "stale")
    assert (await ana.see(approval)).view["revision"] == 2
    await run_with_copies(site, impostor, key, "wire", to)
    assert site.amounts(to) == []


async def test_approval_not_used_in_time_lapses(site: AttackSite, impostor: Impostor) -> None:
    # An approval valid for two seconds and held back for longer does not run the call. With `_in_time` always
    # returning `RUN`, 9 EUR were paid.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    key = await site.person("rui").ask([("hurry", args)])
    shown = await ana.waiting(approval_id(key))
    ctx, view = await impostor.ctx(key), await impostor.view(key)
    forged = await impostor.take_over(key, **{names.STATE: view})
    assert (await ana.decide(shown)).status_code in (200, 202)
    answered = datetime.now(UTC)
    await passed_since(answered, 2.5)
    claim = impostor.claim(ctx, impostor.digest(ctx, "hurry", args), await forged.decisions(), tool="hurry")
    await forged.run("hurry", args, claim)
    assert site.amounts(to) == []


async def test_answer_after_the_deadline_is_not_signed(site: AttackSite, impostor: Impostor) -> None:
    # A taken-over turn claims a late deadline, but the gateway knows the true one. With `_is_over` always false and
    # without the time-based changes at the end of `request_at`, the late answer was signed. With the deadline
    # postponed in `approvals/deadlines.py` 9 EUR were paid.
    to, ana = payee(), site.person("ana")
    args = {"amount": 9, "to": to}
    key = await site.person("rui").ask([("brief", args)])
    shown = await ana.waiting(approval_id(key))
    due = datetime.fromisoformat(shown.view["expires_at"])
    ctx, view = await impostor.ctx(key), await impostor.view(key)

    def change(request: ApprovalRequest) -> ApprovalRequest:
        return replace(request, expires_at=due + timedelta(days=1), timeout=90_000.0)

    forged = await impostor.take_over(key, **{names.STATE: forged_view(view, change)})
    await passed_since(due, 0.2)
    answer = await ana.decide(shown)
    claim = impostor.claim(ctx, impostor.digest(ctx, "brief", args), await forged.decisions(), tool="brief")
    await forged.run("brief", args, claim)
    assert site.amounts(to) == []
    assert receipt(answer)["code"] == "expired"


async def passed_since(moment: datetime, seconds: float) -> None:
    await passed(moment + timedelta(seconds=seconds))
