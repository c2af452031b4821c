"""Deploys under waiting turns: what an approval is still worth when the worker that asked for it is gone."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from failures import Failure
from temporalio.client import Client
from turn_fixtures import (
    AMOUNT_SCHEMA,
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    catalog_of,
    no,
    pay_tool,
    running_turns,
    yes,
)

from signoff.activities import tool_activity
from signoff.contracts.completion import Completion
from signoff.contracts.ids import TurnKey
from signoff.contracts.turn import TurnResult, TurnView
from signoff.engine.turn_client import TurnClient
from signoff.registry.actor import Actor
from signoff.registry.tool import Tool
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

SCRIPT: Sequence[Completion] = [calls(("pay", {"amount": 20, "to": "Ana"})), respond("done")]
WIDER_SCHEMA = AMOUNT_SCHEMA | {"properties": {**AMOUNT_SCHEMA["properties"], "memo": {"type": "string"}}}


async def suspended(client: Client, store: Store, task_queue: str, tools: Sequence[Tool]) -> TurnKey:
    """A turn that waits for an answer, its worker stopped."""
    async with running_turns(client, store, task_queue, catalog_of(tools), SCRIPT) as turns:
        key = await turns.start()
        await turns.waiting(key)
    return key


async def approve_and_finish(turns: RunningTurns, key: TurnKey) -> TurnResult:
    """Approve the first revision and wait for the end."""
    assert (await turns.signoff.decide(yes(key))).status == "accepted"
    return await turns.signoff.result(key)


def _asked_again(view: TurnView) -> bool:
    request = view.calls[0].approval
    return request is not None and request.revision == 2 and request.state == "pending"


async def test_an_approval_outlives_a_deploy_that_edits_another_tool(
    client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    pay, look = pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")
    key = await suspended(client, store, task_queue, [pay, look])
    changed = catalog_of([pay, replace(look, input_schema=WIDER_SCHEMA)])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_an_approval_outlives_a_deploy_that_rewords_its_tool(
    client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, description="Pay somebody, nicely", tags=("money",))])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


@pytest.mark.row("N08")
@pytest.mark.row("N25")
@pytest.mark.failure("the tool changed while you were asked")
async def test_an_approval_of_a_tool_that_changed_is_stale_and_asked_again(
    client: Client, store: Store, task_queue: str, failure: Failure
) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, input_schema=WIDER_SCHEMA)])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        first = await turns.signoff.decide(yes(key))
        view = await turns.until(key, _asked_again)
        assert ledger.rows == []
        old = await turns.signoff.decide(yes(key, revision=1))
        bare = await turns.signoff.decide(yes(key, revision=None))
        assert view.calls[0].approval is not None
        failure.assert_seen(view.calls[0].approval.card.note)
        failure.follow("Read the card again and decide", "the old approval is stale")
        second = await turns.signoff.decide(yes(key, revision=2))
        result = await turns.signoff.result(key)
    assert (first.status, second.status) == ("accepted", "accepted")
    assert (old.code, bare.code) == ("stale", "stale")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_revision_two_can_be_denied(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, version="2")])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        await turns.until(key, _asked_again)
        await turns.signoff.decide(no(key, revision=2))
        result = await turns.signoff.result(key)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert ledger.rows == []


@pytest.mark.row("N08")
async def test_a_policy_tightened_to_deny_while_waiting_denies(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(deny_if="args.amount > 1.0"))])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["denied"]
    assert result.calls[0].denied is not None
    assert result.calls[0].denied.source == "policy"
    assert ledger.rows == []


@pytest.mark.row("N08")
async def test_a_tool_off_the_actors_list_is_not_available(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    tools = [pay_tool(ledger), pay_tool(ledger, False, name="look", effect="")]
    key = await suspended(client, store, task_queue, tools)
    changed = catalog_of(tools, actors=[Actor(name="desk", model="scripted", tools=("look",))])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["not_available"]
    assert ledger.rows == []


@pytest.mark.row("N25")
async def test_a_tool_that_no_worker_has_any_more_is_not_available(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_activity, "WORKERS_TRIED", 3)
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, False, name="look", effect="")])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        result = await approve_and_finish(turns, key)
    assert [outcome.code for outcome in result.calls] == ["not_available"]
    assert result.state == "complete"
    assert ledger.rows == []


async def test_tries_of_a_removed_tool_log_one_warning(
    client: Client, store: Store, task_queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tool_activity, "WORKERS_TRIED", 4)
    key = await suspended(client, store, task_queue, [pay_tool(Ledger())])
    changed = catalog_of([pay_tool(Ledger(), False, name="look", effect="")])
    with caplog.at_level(logging.WARNING):
        async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
            await approve_and_finish(turns, key)
    words = "this worker has no tool `pay`"
    told = [each.getMessage() for each in caplog.records if words in f"{each.getMessage()} {each.exc_info}"]
    assert [each.partition(" (")[0] for each in told] == [f"{words}; other workers are tried for 4 s"]


async def test_a_policy_loosened_while_waiting_releases_nothing(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(auto_approve_if="args.amount > 0.0"))])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        stranger = await turns.signoff.decide(yes(key, subject="guest"))
        view = await turns.signoff.view(key)
        assert ledger.rows == []
        result = await approve_and_finish(turns, key)
    assert (stranger.status, view.state) == ("refused", "suspended")
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_a_quorum_raised_while_waiting_asks_again(client: Client, store: Store, task_queue: str) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    changed = catalog_of([pay_tool(ledger, ApprovalPolicy(quorum=2))])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        await turns.signoff.decide(yes(key))
        view = await turns.until(key, _asked_again)
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
    assert view.calls[0].approval is not None
    assert view.calls[0].approval.quorum == 2
    assert ledger.rows == []


async def test_an_answer_given_between_two_workers_is_used_by_the_next(
    client: Client, store: Store, task_queue: str
) -> None:
    ledger = Ledger()
    key = await suspended(client, store, task_queue, [pay_tool(ledger)])
    between = await TurnClient(client, task_queue=task_queue).decide(yes(key))
    changed = catalog_of([pay_tool(ledger, input_schema=WIDER_SCHEMA)])
    async with running_turns(client, store, task_queue, changed, SCRIPT) as turns:
        await turns.until(key, _asked_again)
        await turns.signoff.decide(yes(key, revision=2))
        result = await turns.signoff.result(key)
    assert between.status == "pending"
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1
