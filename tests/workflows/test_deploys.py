import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from failures import Failure
from raw_turns import RawTurnClient
from some import some
from turn_fixtures import (
    AMOUNT_SCHEMA,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    yes,
)

from signoff.activities import run_once
from signoff.contracts.completion import Completion
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnResult, TurnView
from signoff.registry.actor import Actor
from signoff.registry.tool import Tool
from signoff.testing.scripted_model import calls, respond

SCRIPT: Sequence[Completion] = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
WIDER_SCHEMA = AMOUNT_SCHEMA | {"properties": {**AMOUNT_SCHEMA["properties"], "memo": {"type": "string"}}}


async def suspended(turn_rig: TurnRig, tools: Sequence[Tool]) -> TurnKey:
    async with turn_rig.running(tools, SCRIPT) as turns:
        return await turns.start_waiting()


async def approve_and_finish(turns: RunningTurns, key: TurnKey) -> TurnResult:
    assert (await turns.signoff.decide(yes(key))).status == "accepted"
    return await turns.signoff.result(key)


def _asked_again(view: TurnView) -> bool:
    request = view.calls[0].approval
    return request is not None and request.revision == 2 and request.state == "pending"


async def test_approval_survives_a_deploy_that_changes_another_tool(turn_rig: TurnRig, ledger: Ledger) -> None:
    pay, look = pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")
    key = await suspended(turn_rig, [pay, look])
    changed = catalog_of([pay, replace(look, input_schema=WIDER_SCHEMA)])
    async with turn_rig.running(changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_approval_survives_a_deploy_that_rewords_its_tool(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, description="Pay somebody, nicely", tags=("money",))])
    async with turn_rig.running(changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


@pytest.mark.row("N08", "N25")
@pytest.mark.failure("the tool changed while the request was waiting")
async def test_approval_of_a_changed_tool_is_stale_and_asked_again(turn_rig: TurnRig, failure: Failure) -> None:
    ledger = Ledger()
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, input_schema=WIDER_SCHEMA)])
    async with turn_rig.running(changed, SCRIPT) as turns:
        first = await turns.signoff.decide(yes(key))
        view = await turns.until(key, _asked_again)
        assert ledger.rows == []
        old = await turns.signoff.decide(yes(key, revision=1))
        bare = await turns.signoff.decide(yes(key, revision=None))
        failure.assert_seen(some(view.calls[0].approval).card.note)
        failure.follow("Read the card again and decide", "the old approval is stale")
        second = await turns.signoff.decide(yes(key, revision=2))
        result = await turns.signoff.result(key)
    assert (first.status, second.status) == ("accepted", "accepted")
    assert (old.code, bare.code) == ("stale", "stale")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_second_revision_can_be_denied(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, version="2")])
    async with turn_rig.running(changed, SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        await turns.until(key, _asked_again)
        result = await turns.result_after(no(key, revision=2))
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert ledger.rows == []


@pytest.mark.row("N08")
async def test_policy_tightened_to_deny_while_waiting_denies_the_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(deny_if="args.amount > 1.0"))])
    async with turn_rig.running(changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert some(result.calls[0].denied).source == "policy"
    assert ledger.rows == []


@pytest.mark.row("N08")
async def test_approved_tool_removed_from_the_actors_list_is_not_available(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")]
    key = await suspended(turn_rig, tools)
    changed = catalog_of(tools, actors=[Actor(name="desk", model="scripted", tools=("look",))])
    async with turn_rig.running(changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["not_available"]
    assert ledger.rows == []


@pytest.mark.row("N25")
async def test_tool_removed_from_every_worker_is_not_available(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.setattr(run_once, "WORKERS_TRIED", 3)
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, False, name="look", effect="")])
    async with turn_rig.running(changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["not_available"]
    assert result.state == "complete"
    assert ledger.rows == []


async def test_attempts_of_a_removed_tool_log_one_warning(
    turn_rig: TurnRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_once, "WORKERS_TRIED", 4)
    key = await suspended(turn_rig, [pay_tool(Ledger())])
    changed = catalog_of([pay_tool(Ledger(), False, name="look", effect="")])
    with caplog.at_level(logging.WARNING):
        async with turn_rig.running(changed, SCRIPT) as turns:
            await approve_and_finish(turns, key)
    words = "this worker has no tool `pay`"
    told = [each.getMessage() for each in caplog.records if words in f"{each.getMessage()} {each.exc_info}"]
    assert [each.partition(" (")[0] for each in told] == [f"{words}; other workers are tried for 4 s"]


async def test_policy_loosened_while_waiting_releases_no_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount > 0.0"))])
    async with turn_rig.running(changed, SCRIPT) as turns:
        stranger = await turns.signoff.decide(yes(key, subject="guest"))
        view = await turns.signoff.view(key)
        assert ledger.rows == []
        result = await approve_and_finish(turns, key)
    assert (stranger.status, view.state) == ("refused", "suspended")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_quorum_raised_while_waiting_asks_again(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(quorum=2))])
    async with turn_rig.running(changed, SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        view = await turns.until(key, _asked_again)
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    assert some(view.calls[0].approval).quorum == 2
    assert ledger.rows == []


async def test_answer_between_two_workers_counts_with_the_next_worker(turn_rig: TurnRig, ledger: Ledger) -> None:
    key = await suspended(turn_rig, [pay_tool(ledger)])
    between = await RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue).decide(yes(key))
    changed = catalog_of([pay_tool(ledger, input_schema=WIDER_SCHEMA)])
    async with turn_rig.running(changed, SCRIPT) as turns:
        await turns.until(key, _asked_again)
        result = await turns.result_after(yes(key, revision=2))
    assert between.status == "pending"
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1
