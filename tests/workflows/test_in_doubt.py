from typing import Any

import pytest
from some import some
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    slow_once,
    withdrawn,
    yes,
)

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome, RuleReference
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.people.directory import development_directory
from signoff.store.tickets import ticket_key
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]
FREE = ApprovalPolicy(auto_approve_if="args.amount < 50.0", timeout=7_200.0)


async def in_doubt(turns: RunningTurns, key: TurnKey, revision: int = 2) -> ApprovalRequest:
    view = await turns.until(key, lambda view: bool(view.calls) and _asks(view.calls[0].approval, revision))
    return some(view.calls[0].approval)


def _asks(request: ApprovalRequest | None, revision: int) -> bool:
    return request is not None and (request.kind, request.state, request.revision) == ("in_doubt", "pending", revision)


async def lost(turns: RunningTurns, key: TurnKey) -> ApprovalRequest:
    await turns.lose(key)
    return await in_doubt(turns, key)


async def test_outcome_question_keeps_its_approvers_and_rejects_unfit_answers(turn_rig: TurnRig) -> None:
    tool = pay_tool(Ledger(), ApprovalPolicy(approvers=("role:approvers", "user:cfo"), allow_remember=True))
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        first = (await turns.waiting(key)).calls[0].approval
        doubt = await lost(turns, key)
        view = await turns.signoff.view(key)
        codes = [
            (await turns.signoff.decide(answer)).code
            for answer in (
                yes(key, revision=None),
                yes(key, revision=2, question_hash=first.question_hash if first else ""),
                yes(key, revision=2, edited_args={"amount": 1}),
                yes(key, revision=2, remember={}),
                yes(key, revision=2, verdict="happened", result="x" * 2_001),
                yes(key, revision=2, subject="guest"),
            )
        ]
        await turns.signoff.decide(no(key, revision=2))
        await turns.signoff.result(key)
    assert first is not None
    assert (doubt.id, doubt.code, doubt.approvers) == (first.id, first.code, first.approvers)
    assert (doubt.edit, doubt.allow_remember, doubt.digest != first.digest) == ("off", False, True)
    assert doubt.card.rows == first.card.rows
    assert doubt.card.note == "Outcome unknown: the tool started and never reported its outcome."
    assert view.state == "suspended"
    assert codes == ["stale", "stale", "malformed", "malformed", "malformed", "not_allowed"]


@pytest.mark.parametrize(("result", "value"), [("booking 7, paid 20", "booking 7, paid 20"), ("", "It happened.")])
async def test_call_confirmed_as_happened_succeeds_without_running(
    result: str, value: str, turn_rig: TurnRig, ledger: Ledger
) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        await lost(turns, key)
        receipt = await turns.signoff.decide(yes(key, revision=2, verdict="happened", result=result))
        outcome = (await turns.signoff.result(key)).calls[0]
        results = await turns.results(key)
        late = await turns.signoff.decide(yes(key, revision=2))
    assert (receipt.status, receipt.state, receipt.verdict) == ("accepted", "happened", "happened")
    assert (outcome.code, outcome.decided_by, outcome.value.inline) == ("ok", "approver", value)
    assert (results[0].value.inline, results[0].note) == (
        value,
        "The tool did not answer; a person says that this happened.",
    )
    assert (late.code, late.decided_by) == ("already_decided", "approver")
    assert ledger.rows == []


async def test_call_approved_again_runs_under_a_second_ticket(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        first = (await turns.waiting(key)).calls[0].approval
        doubt = await lost(turns, key)
        result = await turns.result_after(yes(key, revision=2, question_hash=doubt.question_hash))
    assert first is not None
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[2] for row in ledger.rows] == [f"{first.digest}/2"]


async def test_call_lost_twice_runs_under_a_third_ticket(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        first = some((await turns.waiting(key)).calls[0].approval)
        await lost(turns, key)
        await turn_rig.store.claim(ticket_key(first.digest, 2), workflow=key.workflow_id, call="c1.1", tool="pay")
        await turns.signoff.decide(yes(key, revision=2))
        await in_doubt(turns, key, 3)
        result = await turns.result_after(yes(key, revision=3))
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert [row[2] for row in ledger.rows] == [f"{first.digest}/3"]


@pytest.mark.parametrize("verdict", ["approved", "happened"])
async def test_late_outcome_of_a_slow_worker_overrides_the_answer(
    verdict: Any, turn_rig: TurnRig, ledger: Ledger
) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        first = some((await turns.waiting(key)).calls[0].approval)
        await lost(turns, key)
        late = CallOutcome(call="c1.1", tool="pay", code="ok", gate="execute", value=Content(inline="paid late"))
        await turn_rig.store.record(ticket_key(first.digest, 1), late)
        said = "booking 7" if verdict == "happened" else ""
        result = await turns.result_after(yes(key, revision=2, verdict=verdict, result=said))
    assert [(outcome.code, outcome.value.inline) for outcome in result.calls] == [("ok", "paid late")]
    assert ledger.rows == []


@pytest.mark.parametrize("how", ["denied", "withdrawn", "cancelled"])
async def test_denied_or_withdrawn_outcome_question_leaves_outcome_unknown(
    how: str, turn_rig: TurnRig, ledger: Ledger
) -> None:
    async with turn_rig.running([pay_tool(ledger)], SCRIPT) as turns:
        key = await turns.start()
        await lost(turns, key)
        if how == "denied":
            await turns.signoff.decide(no(key, revision=2))
        elif how == "withdrawn":
            await turns.signoff.withdraw(withdrawn(key))
        else:
            await turns.signoff.cancel_turn(key)
        result = await turns.signoff.result(key)
    assert result.state == ("cancelled" if how == "cancelled" else "complete")
    assert [(outcome.code, outcome.value.inline) for outcome in result.calls] == [("in_doubt", IN_DOUBT_TEXT)]
    assert result.calls[0].decided_by == {"denied": "approver", "withdrawn": "guest", "cancelled": "approver"}[how]
    assert ledger.rows == []


async def test_lost_call_that_ran_by_rule_asks_approvers(turn_rig: TurnRig, ledger: Ledger) -> None:
    tool = pay_tool(ledger, FREE, handler=slow_once(ledger), timeout=0.2)
    async with turn_rig.running([tool], SCRIPT) as turns:
        key = await turns.start()
        doubt = await in_doubt(turns, key, 1)
        result = await turns.result_after(yes(key, revision=doubt.revision))
    assert doubt.approvers == ("role:approvers",)
    assert [(outcome.code, outcome.rule) for outcome in result.calls] == [("ok", RuleReference(name="auto_approve_if"))]
    assert len(ledger.rows) == 1
    assert ledger.rows[0][2].endswith("/2")


async def test_repeated_run_needs_the_same_quorum(turn_rig: TurnRig, ledger: Ledger) -> None:
    people = development_directory([a_person(name) for name in ("ana", "bo")])
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(quorum=2))])
    async with turn_rig.running(catalog, SCRIPT, people=people) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="bo"))
        request = some((await turns.signoff.view(key)).calls[0].approval)
        await turn_rig.store.claim(ticket_key(request.digest, 1), workflow=key.workflow_id, call="c1.1", tool="pay")
        await turns.signoff.decide(yes(key, subject="ana"))
        await in_doubt(turns, key)
        one = await turns.signoff.decide(yes(key, subject="ana", revision=2))
        assert ledger.rows == []
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        await turns.signoff.result(key)
    assert (one.status, one.votes, one.needed) == ("counted", 1, 2)
    assert len(ledger.rows) == 1
