import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from gateway_rig import GatewayRig, gateway_rig
from sqlalchemy import text
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from turn_fixtures import catalog_of, pay_tool

from signoff.activities.caller_check import ActivityCaller, own_problem
from signoff.audit.event_deliveries import EventDeliveries
from signoff.contracts import names
from signoff.contracts.activity_messages import EventTask
from signoff.contracts.audit import CloudEvent
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey, event_workflow_id
from signoff.engine import handler_runs
from signoff.gateway.events import event_sender
from signoff.gateway.events.event_sender import RETRY_SECONDS, EventSender
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results


@dataclass
class Handler:
    events: list[CloudEvent] = field(default_factory=list)
    does: Callable[[CloudEvent], Awaitable[None]] | None = None

    async def __call__(self, event: CloudEvent) -> None:
        self.events.append(event)
        if self.does is not None:
            await self.does(event)


def react(request: CompletionRequest) -> Completion:
    pays = last_user_text(request) == "pay" and not results(request)
    return calls(("pay", {"amount": 420, "to": "Ana"})) if pays else respond("done")


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def rig(
    request: pytest.FixtureRequest, client: Client, store: Store, handler: Handler
) -> AsyncIterator[GatewayRig]:
    """It has already seen older events. The handler has a minute, or the test's own limit: a busy machine may need
    seconds before it learns of a quick end.
    """
    seconds = getattr(request, "param", 60.0)
    feed = Subscription("feed", ("approval.*", "tool_call*", "freeze.*"), handler=handler, timeout=seconds)
    async with gateway_rig(
        client,
        store,
        f"handlers-{uuid.uuid4().hex[:12]}",
        catalog_of_ledger=lambda ledger: catalog_of([pay_tool(ledger)], subscriptions=[feed]),
        model=ScriptedModel(react),
    ) as found:
        await sender_of(found).step()
        yield found


def sender_of(rig: GatewayRig, **changes: Any) -> EventSender:
    return EventSender(rig.deps, replace(rig.deps.catalog.subscriptions["feed"], **changes))


async def froze(rig: GatewayRig) -> None:
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})


async def make_due(rig: GatewayRig) -> None:
    change = text("UPDATE event_deliveries SET due_at = 0, claimed_until = 0 WHERE state = 'new'")
    await rig.deps.store.run(lambda connection: connection.execute(change))


async def owed(rig: GatewayRig) -> list[tuple[str, int, str]]:
    query = text("SELECT state, attempts, code FROM event_deliveries ORDER BY number")
    return await rig.deps.store.run(lambda connection: [tuple(row) for row in connection.execute(query)])


async def test_handler_receives_the_steps_of_a_turn_in_order(rig: GatewayRig, handler: Handler) -> None:
    approval = await rig.asked("pay")
    await rig.decide(approval, verdict="approved", **{"as": "approver"})
    await rig.turns.signoff.result(_key(approval))
    sender = sender_of(rig)
    while await sender.step():
        pass
    assert [each.type for each in handler.events] == [
        "tool_call.proposed",
        "approval.requested",
        "approval.decided",
        "tool_call:pay",
        "tool_call.executed",
    ]
    assert [each.number for each in handler.events] == sorted({each.number for each in handler.events})
    assert handler.events[3].data["arguments"]["amount"] == 420
    assert await owed(rig) == []


async def test_failing_handler_is_retried_given_up_and_retried_by_command(rig: GatewayRig, handler: Handler) -> None:
    """The result code is the error's type, never its text."""

    async def fail(event: CloudEvent) -> None:
        raise ConnectionError(f"secret of {event.id}")

    handler.does = fail
    await froze(rig)
    sender = sender_of(rig)
    for tries in range(1, len(RETRY_SECONDS) + 1):
        assert await sender.step() == 2
        assert await owed(rig) == [("new", tries, "ConnectionError")] * 2
        assert await sender.step() == 0
        await make_due(rig)
    await sender.step()
    failed = (await rig.http.get("/v1/events/failed")).json()["failed"]
    assert [(each["subscription"], each["code"]) for each in failed] == [("feed", "ConnectionError")] * 2
    handler.does = None
    handler.events.clear()
    retried = await rig.http.post("/v1/events/failed/retry?as=approver", params={"subscription": "feed"}, json={})
    assert retried.json() == {"retried": 2}, retried.text
    assert await sender.step() == 2
    assert [each.type for each in handler.events] == ["freeze.started", "freeze.lifted"]
    assert await owed(rig) == []


@pytest.mark.parametrize("rig", [2.0], indirect=True)
async def test_hanging_handler_is_cancelled_and_delays_nothing_else(rig: GatewayRig, handler: Handler) -> None:
    hanging = asyncio.Event()

    async def hang(event: CloudEvent) -> None:
        hanging.set()
        await asyncio.Event().wait()

    handler.does = hang
    await froze(rig)
    beside = False
    # Repeat if a busy machine needed longer for the turn than the handler's limit.
    while not beside:
        hanging.clear()
        # The worker cancels it after its two seconds. The sender waits until the worker reports that.
        stepping = asyncio.create_task(sender_of(rig, timeout=60.0).step())
        await hanging.wait()
        approval = await rig.asked("pay")
        await rig.decide(approval, verdict="approved", **{"as": "approver"})
        assert (await rig.turns.signoff.result(_key(approval))).state == "complete"
        beside = not stepping.done()
        await stepping
        assert {(state, code) for state, _, code in await owed(rig)} == {("new", "timeout")}
        await make_due(rig)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit"),
        (TimeoutError("of its own"), "TimeoutError"),
        (ApplicationError("x", type="Own"), "ApplicationError"),
    ],
)
async def test_any_error_of_a_handler_ends_only_that_run(
    rig: GatewayRig, handler: Handler, error: BaseException, code: str
) -> None:
    async def end(event: CloudEvent) -> None:
        raise error

    handler.does = end
    await froze(rig)
    assert await sender_of(rig).step() == 2
    assert [each[2] for each in await owed(rig)] == [code] * 2
    assert (await rig.turns.signoff.result(await rig.start("nothing"))).state == "complete"


async def test_gateway_killed_during_a_run_causes_no_second_run(rig: GatewayRig, handler: Handler) -> None:
    """With a workflow id that could be reused after a success, the handler ran three times."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def wait(event: CloudEvent) -> None:
        begun.set()
        await goes_on.wait()

    handler.does = wait
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    dying = asyncio.create_task(sender_of(rig).step())
    await begun.wait()
    dying.cancel()
    await asyncio.wait({dying})
    await make_due(rig)
    replacing = asyncio.create_task(sender_of(rig).step())
    goes_on.set()
    await replacing
    assert len(handler.events) == 1
    assert await owed(rig) == []
    # The event was handled, but the sender died before it recorded that.
    await rig.http.request("DELETE", "/v1/freezes/main?as=approver", json={})
    sender = sender_of(rig)
    keep = EventDeliveries.finish

    async def die(self: EventDeliveries, key: str) -> None:
        raise asyncio.CancelledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventDeliveries, "finish", die)
        with pytest.raises(asyncio.CancelledError):
            await sender.step()
    assert EventDeliveries.finish is keep
    await make_due(rig)
    assert await sender_of(rig).step() == 1
    assert [each.type for each in handler.events] == ["freeze.started", "freeze.lifted"]
    assert await owed(rig) == []


async def test_several_gateways_handle_each_event_once(rig: GatewayRig, handler: Handler) -> None:
    for _ in range(3):
        await froze(rig)
    senders = [sender_of(rig) for _ in range(3)]
    for _ in range(3):
        await asyncio.gather(*(each.step() for each in senders))
    assert Counter(each.id for each in handler.events).most_common(1)[0][1] == 1
    assert len(handler.events) == 6


async def test_slow_handler_run_is_awaited_again_and_counts_no_failure(
    rig: GatewayRig, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = asyncio.Event()

    async def wait(event: CloudEvent) -> None:
        await goes_on.wait()

    handler.does = wait
    monkeypatch.setattr(event_sender, "LEASE_SECONDS", event_sender._SPARE_SECONDS + 0.7)
    await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    for _ in range(3):
        await sender_of(rig).step()
        assert await owed(rig) == [("new", 0, handler_runs.UNFINISHED)]
        await make_due(rig)
    monkeypatch.undo()
    goes_on.set()
    await sender_of(rig).step()
    assert (len(handler.events), await owed(rig)) == (1, [])


async def test_forged_workflow_cannot_choose_a_handlers_event(rig: GatewayRig, handler: Handler) -> None:
    temporal, queue = rig.deps.client.temporal, rig.turns.task_queue

    async def run(delivery: str, workflow_id: str) -> None:
        task = EventTask(delivery=delivery, subscription="feed", seconds=1)
        await temporal.execute_workflow(names.HANDLER_RUN, task, id=workflow_id, task_queue=queue)

    await run("0", event_workflow_id(rig.deps.store.id, "0"))
    with pytest.raises(WorkflowFailureError):
        await run("0", f"other/{uuid.uuid4().hex}")
    assert handler.events == []
    task = EventTask(delivery="0", subscription="feed", seconds=1)
    assert own_problem(ActivityCaller(names.ACTOR_TURN, "turn/main/s/t", names.EVENT, "1"), [task]) == ""


async def test_worker_without_the_handler_reports_not_deployed(rig: GatewayRig, handler: Handler) -> None:
    await froze(rig)
    added = Subscription("later", ("freeze.*",), handler=handler)
    sender = EventSender(rig.deps, added)
    await sender.step()
    await froze(rig)
    assert await sender.step() == 2
    assert {each[2] for each in await owed(rig)} == {"NotDeployed"}
    assert handler.events == []


def _key(approval: str) -> TurnKey:
    return TurnKey(*approval.split(".")[:3])
