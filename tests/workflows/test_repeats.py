import asyncio
from functools import partial

import pytest
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, no, pay_tool, withdrawn, yes

from signoff.contracts.turn import TurnView
from signoff.people.directory import development_directory
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 20, "to": "Ana"})
SAME = ("pay", {"to": "Ana", "amount": 20.0})
OTHER = ("pay", {"amount": 21, "to": "Ana"})
PEOPLE = development_directory([a_person(name) for name in ("ana", "bo")])


def _waits_for(completion: int, view: TurnView) -> bool:
    return view.state == "suspended" and view.calls[-1].call == f"c{completion}.1"


@pytest.mark.row("N30")
async def test_repeated_denied_call_is_denied_with_the_first_decision(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(PAY), calls(SAME), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
        view = await turns.signoff.view(key)
    first, second = (outcome.denied for outcome in result.calls)
    assert first is not None
    assert second is not None
    assert (first.source, second.source) == ("human", "repeat")
    assert (second.approval_id, second.decided_by, second.reason, second.decided_at) == (
        yes(key).approval_id,
        "approver",
        "too expensive",
        first.decided_at,
    )
    assert (second.call_id, second.tool) == ("c2.1", "pay")
    assert view.calls[1].approval is None
    assert ledger.rows == []


async def test_denied_edit_blocks_the_edited_arguments_only(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [pay_tool(ledger, ApprovalPolicy(edit="approve", quorum=2))]
    script = [calls(PAY), calls(OTHER), calls(PAY), respond("done")]
    async with turn_rig.running(tools, script, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana", edited_args=OTHER[1]))
        await turns.signoff.decide(no(key, subject="bo", revision=2))
        await turns.until(key, lambda view: view.state == "suspended" and len(view.calls) > 1)
        for subject in ("ana", "bo"):
            await turns.signoff.decide(yes(key, "c3.1", subject=subject))
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
        await turns.replays(key)
    assert [outcome.code for outcome in result.calls] == ["denied", "denied", "ok"]
    assert [call.denied.source for call in result.calls if call.denied] == ["human", "repeat"]
    assert [args for _, args, _ in ledger.rows] == [PAY[1]]


async def test_call_with_other_arguments_is_asked_after_a_denial(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(PAY), calls(OTHER), calls(OTHER), respond("done")]
    async with turn_rig.running([pay_tool(ledger)], script) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(no(key))
        await turns.until(key, partial(_waits_for, 2))
        await turns.signoff.withdraw(withdrawn(key, "c2.1"))
        await turns.until(key, partial(_waits_for, 3))
        result = await turns.result_after(yes(key, "c3.1"))
    assert [outcome.code for outcome in result.calls] == ["denied", "denied", "ok"]


async def test_expired_request_is_asked_again(turn_rig: TurnRig) -> None:
    policy = ApprovalPolicy(timeout=0.1)
    script = [calls(PAY), calls(PAY), respond("done")]
    async with turn_rig.running([pay_tool(Ledger(), policy)], script) as turns:
        result = await turns.signoff.result(await turns.start())
    assert [call.denied.source for call in result.calls if call.denied] == ["timeout", "timeout"]


@pytest.mark.row("E60")
async def test_repeated_denials_count_towards_the_denial_limit(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")]
    script = [calls(("look", {"amount": 1})), calls(PAY), calls(PAY), calls(PAY), respond("never")]
    async with turn_rig.running(tools, script) as turns:
        key = await turns.start()
        await turns.until(key, partial(_waits_for, 2))
        await turns.signoff.decide(no(key, "c2.1"))
        result = await asyncio.wait_for(turns.signoff.result(key), 60)
    assert (result.state, result.error.code if result.error else "") == ("error", "denial_limit")
    assert [outcome.code for outcome in result.calls] == ["ok", "denied", "denied", "denied"]
    assert [call.denied.source for call in result.calls if call.denied] == ["human", "repeat", "repeat"]
