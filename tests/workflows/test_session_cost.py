"""What a session costs in history events, and that its histories replay in a sandbox that watches it."""

import asyncio

import pytest
from desk_fixtures import ApprovalPolicy, Ledger, bench, catalog_of, pay_tool, yes
from session_desk import model, talk
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from signoff.converter import DATA_CONVERTER
from signoff.store.store import Store
from signoff.workflows.session import Session

_UNDER_WAY = ("WORKFLOW_TASK_SCHEDULED", "WORKFLOW_TASK_STARTED", "WORKFLOW_EXECUTION_SIGNALED")
AUTO = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


def _names(history: WorkflowHistory) -> list[str]:
    return [EventType.Name(event.event_type).removeprefix("EVENT_TYPE_") for event in history.events]


async def test_a_turn_in_a_session_costs_five_events_more_and_five_when_it_waits(
    client: Client, store: Store, task_queue: str
) -> None:
    """An automatic turn 25 + 5, a human one 36 + 10: one signal each to its session, and the task that follows it.

    On a busy machine a task may take up two things at once; a turn then costs less, never more.
    """
    ledger = Ledger()
    tools = [pay_tool(ledger, AUTO)]
    async with bench(client, store, task_queue, catalog_of(tools), model()) as desk:
        session = talk(desk)
        await session.say("pay", "a")
        await session.answer("a")
        automatic = await desk.events(session.turn_key("a"))
    async with bench(client, store, f"{task_queue}-2", catalog_of([pay_tool(ledger)]), model()) as desk:
        session = talk(desk)
        await session.say("pay", "b")
        await session.turn("b", "waiting")
        await desk.signoff.decide(yes(session.turn_key("b")))
        await session.answer("b")
        await desk.signoff.result(session.turn_key("b"))
        human = await desk.events(session.turn_key("b"))
        own = _names(await session.handle.fetch_history())
    assert len(automatic) <= 25 + 5, automatic
    assert len(human) <= 36 + 10, human
    assert len(own) <= 25, own


async def test_every_run_of_a_session_replays_in_a_watching_sandbox(
    client: Client, store: Store, task_queue: str
) -> None:
    """A session that waited, went on in a second run and took a late result does again what it did."""
    async with bench(client, store, task_queue, catalog_of([pay_tool(Ledger())]), model()) as desk:
        session = talk(desk)
        await session.begin(events_per_run=40)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        for number in range(4):
            await session.say(f"n{number}", f"n{number}")
        await session.answer("n3")
        await session.add("n3", "late")
        await session.answer("n3-2")
        # A history that ends in the middle of a task cannot be replayed to its end.
        while True:
            runs = [row async for row in client.list_workflows(f'WorkflowId = "{session.key.workflow_id}"')]
            histories = [await client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history() for row in runs]
            if not any(_names(history)[-1] in _UNDER_WAY for history in histories):
                break
            await asyncio.sleep(0.05)
    assert len(histories) >= 2
    light = SandboxRestrictions.default.with_passthrough_modules("signoff.contracts", "signoff.approvals")
    replayer = Replayer(
        workflows=[Session],
        workflow_runner=SandboxedWorkflowRunner(restrictions=light),
        data_converter=DATA_CONVERTER,
    )
    for history in histories:
        try:
            async with asyncio.timeout(60):
                assert (await replayer.replay_workflow(history)).replay_failure is None
        except TimeoutError:
            pytest.fail(f"it is never read to its end: {_names(history)}")
