"""A history of running work is read while it runs: the end of its worker would end it."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from gateway_rig import GatewayRig, gateway_rig
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, imported_tool
from session_rig import Talk, react, talk
from sqlalchemy import text
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError
from turn_fixtures import Ledger, RunningTurns, catalog_of, doubted, pay_tool, running_turns, yes

from signoff.audit.event_deliveries import EventDeliveries
from signoff.contracts.audit import CloudEvent
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey, event_workflow_id
from signoff.gateway.events.event_sender import EventSender
from signoff.registry.actor import Actor
from signoff.registry.manifest.subscription_sections import EventHandler, Subscription
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

KindScenario = Callable[[Client, Store], Awaitable[WorkflowHistory]]
TASK = "mcp__up__task"
_LOOK_SECONDS = 0.05
_TASK_SECONDS = 10.0
_RUN_EVENTS = 12
"""Events after which a recorded session starts its second run."""


async def history_of(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowHistory:
    return await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()


async def _ended(client: Client, store: Store, *script: Completion) -> WorkflowHistory:
    actors = [Actor(name="desk", model="scripted"), Actor(name="bank", model="scripted", tools=())]
    async with running_turns(client, store, "recording", catalog_of([], actors=actors), list(script)) as turns:
        key = await turns.start()
        await turns.signoff.result(key)
        return await history_of(client, key.workflow_id)


async def clarifying(client: Client, store: Store) -> WorkflowHistory:
    return await _ended(client, store, respond("which one?", "clarifying"))


async def awaiting(client: Client, store: Store) -> WorkflowHistory:
    return await _ended(client, store, respond("it is on its way", "awaiting"))


async def delegated(client: Client, store: Store) -> WorkflowHistory:
    return await _ended(client, store, respond("the bank does it", "delegated"))


async def passed(client: Client, store: Store) -> WorkflowHistory:
    return await _ended(client, store, respond("the bank will tell you", "passed", passTo="bank"))


async def failed(client: Client, store: Store) -> WorkflowHistory:
    return await _ended(client, store, respond(""), respond(""))


async def session_idle(session: Talk) -> WorkflowHistory:
    await session.say("hello", "a")
    await session.answer("a")
    return await history_of(session.turns.client, session.key.workflow_id)


async def session_waiting(session: Talk) -> WorkflowHistory:
    await session.say("pay", "a")
    await session.turn("a", "waiting")
    return await history_of(session.turns.client, session.key.workflow_id)


async def session_went_on(session: Talk) -> WorkflowHistory:
    await session.begin(events_per_run=_RUN_EVENTS)
    first = (await session.handle.describe()).run_id
    await session.say("pay", "a")
    await session.turn("a", "waiting")
    await _talk_until_next_run(session)
    return await history_of(session.turns.client, session.key.workflow_id, first)


async def session_next_run(session: Talk) -> WorkflowHistory:
    await session.begin(events_per_run=_RUN_EVENTS)
    await session.say("pay", "a")
    await session.turn("a", "waiting")
    await _talk_until_next_run(session)
    await session.turns.signoff.decide(yes(session.turn_key("a")))
    await session.answer("a")
    return await history_of(session.turns.client, session.key.workflow_id)


async def _talk_until_next_run(session: Talk) -> None:
    number = 0
    while await session.runs() < 2:
        number += 1
        await session.say("hello", f"b{number}")
        await session.answer(f"b{number}")


async def session_cancelled(session: Talk) -> WorkflowHistory:
    await session.say("hello", "a")
    await session.answer("a")
    await session.handle.cancel()
    with suppress(Exception):
        await session.handle.result()
    return await history_of(session.turns.client, session.key.workflow_id)


def call_task(request: CompletionRequest) -> Completion:
    if results(request):
        return respond("done")
    return calls((TASK, {"text": last_user_text(request).removeprefix("task ")}))


def task_tool(server: ToolServer) -> Tool:
    return imported_tool(server, "task", requires_approval=True, effect="Begin {text}", timeout=_TASK_SECONDS)


async def _begun(turns: RunningTurns, name: str) -> TurnKey:
    key = await turns.start_waiting(f"task {name}")
    await turns.signoff.decide(yes(key))
    return key


async def _followed(turns: RunningTurns, upstream: Upstream) -> TurnKey:
    before = len(upstream.looks)
    key = await _begun(turns, "forever")
    while len(upstream.looks) == before:
        await asyncio.sleep(_LOOK_SECONDS)
    return key


async def _ended_task(turns: RunningTurns, key: TurnKey) -> WorkflowHistory:
    await turns.signoff.result(key)
    return await history_of(turns.client, key.workflow_id)


async def task_cancelled(turns: RunningTurns, upstream: Upstream) -> WorkflowHistory:
    key = await _followed(turns, upstream)
    await turns.signoff.cancel_turn(key)
    return await _ended_task(turns, key)


async def task_complete(turns: RunningTurns, upstream: Upstream) -> WorkflowHistory:
    return await _ended_task(turns, await _begun(turns, "a7"))


async def task_failed(turns: RunningTurns, upstream: Upstream) -> WorkflowHistory:
    return await _ended_task(turns, await _begun(turns, "failed"))


async def task_lost(turns: RunningTurns, upstream: Upstream) -> WorkflowHistory:
    key = await _begun(turns, "lost")
    await turns.until(key, doubted)
    await turns.signoff.decide(yes(key, revision=2, verdict="happened", result="done"))
    return await _ended_task(turns, key)


async def task_running(turns: RunningTurns, upstream: Upstream) -> WorkflowHistory:
    key = await _followed(turns, upstream)
    return await history_of(turns.client, key.workflow_id)


async def _take(event: CloudEvent) -> None:
    return


async def _fail(event: CloudEvent) -> None:
    raise ValueError("no such account")


async def _wait(event: CloudEvent) -> None:
    await asyncio.Event().wait()


def feeds(**handlers: EventHandler) -> list[Subscription]:
    given = {"done": _take, "failed": _fail, "running": _wait} | handlers
    return [Subscription(name, ("freeze.started",), handler=each, timeout=600.0) for name, each in given.items()]


async def _owed(rig: GatewayRig, feed: str) -> tuple[EventSender, str]:
    to, store = rig.deps.catalog.subscriptions[feed], rig.deps.store
    sender = EventSender(rig.deps, to)
    await sender.step()
    frozen = await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
    headers = {"content-type": "application/json"}
    unfrozen = await rig.http.delete("/v1/freezes/main?as=approver", headers=headers)
    assert (frozen.status_code, unfrozen.status_code) == (200, 200), (frozen.text, unfrozen.text)
    query, key = text("SELECT key FROM event_deliveries WHERE subscription = :feed"), None
    while key is None:
        await rig.deps.events.extend()
        await EventDeliveries(store, rig.deps.limits).add(to)
        key = await store.run(lambda connection: connection.scalar(query, {"feed": feed}))
    return sender, event_workflow_id(store.id, str(key))


async def handler_done(rig: GatewayRig) -> WorkflowHistory:
    sender, workflow_id = await _owed(rig, "done")
    await sender.step()
    return await history_of(rig.turns.client, workflow_id)


async def handler_failed(rig: GatewayRig) -> WorkflowHistory:
    sender, workflow_id = await _owed(rig, "failed")
    await sender.step()
    return await history_of(rig.turns.client, workflow_id)


async def handler_running(rig: GatewayRig) -> WorkflowHistory:
    sender, workflow_id = await _owed(rig, "running")
    sending = asyncio.create_task(sender.step())
    await started(rig.turns.client, workflow_id)
    sending.cancel()
    return await history_of(rig.turns.client, workflow_id)


async def started(client: Client, workflow_id: str) -> None:
    handle = client.get_workflow_handle(workflow_id)
    while True:
        with suppress(RPCError):
            pending = (await handle.describe()).raw_description.pending_activities
            if any(each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for each in pending):
                return
        await asyncio.sleep(_LOOK_SECONDS)


async def running(client: Client, store: Store) -> WorkflowHistory:
    begun, over = asyncio.Event(), asyncio.Event()

    async def hold(args: dict[str, object], ctx: ToolContext) -> str:
        begun.set()
        await over.wait()
        return "done"

    tool = pay_tool(Ledger(), False, effect="", handler=hold)
    script = [calls(("pay", {"amount": 1})), respond("done")]
    async with running_turns(client, store, "recording", catalog_of([tool]), script) as turns:
        key = await turns.start()
        await begun.wait()
        found = await history_of(client, key.workflow_id)
        over.set()
        await turns.signoff.result(key)
        return found


def _talking(scenario: Callable[[Talk], Awaitable[WorkflowHistory]]) -> KindScenario:
    async def play(client: Client, store: Store) -> WorkflowHistory:
        catalog = catalog_of([pay_tool(Ledger())])
        async with running_turns(client, store, "recording", catalog, ScriptedModel(react)) as turns:
            return await scenario(talk(turns))

    return play


def _on_server(scenario: Callable[[RunningTurns, Upstream], Awaitable[WorkflowHistory]]) -> KindScenario:
    async def play(client: Client, store: Store) -> WorkflowHistory:
        with tempfile.TemporaryDirectory() as folder:
            upstream = Upstream(Path(folder))
            async with by_http(upstream) as server:
                catalog = catalog_of([task_tool(server)], mcp_servers=[server])
                async with running_turns(client, store, "recording", catalog, ScriptedModel(call_task)) as turns:
                    return await scenario(turns, upstream)

    return play


def _handled(scenario: Callable[[GatewayRig], Awaitable[WorkflowHistory]]) -> KindScenario:
    async def play(client: Client, store: Store) -> WorkflowHistory:
        async with gateway_rig(
            client, store, "recording", catalog_of_ledger=lambda _: catalog_of([], subscriptions=feeds())
        ) as rig:
            return await scenario(rig)

    return play


TURNS = (running, clarifying, awaiting, delegated, passed, failed)
SESSIONS = (session_idle, session_waiting, session_went_on, session_next_run, session_cancelled)
TASKS = (task_cancelled, task_complete, task_failed, task_lost, task_running)
HANDLERS = (handler_done, handler_failed, handler_running)
KIND_SCENARIOS: dict[str, KindScenario] = {
    **{scenario.__name__: scenario for scenario in TURNS},
    **{scenario.__name__: _talking(scenario) for scenario in SESSIONS},
    **{scenario.__name__: _on_server(scenario) for scenario in TASKS},
    **{scenario.__name__: _handled(scenario) for scenario in HANDLERS},
}
