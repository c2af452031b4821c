"""Histories of sessions, handler runs and tasks of MCP servers, and of turns in the states that no other scenario has.

A history of running work is read while it runs: the end of its worker would end it.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from gateway_rig import gateway_rig
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, imported_tool
from session_rig import Talk, react, talk
from sqlalchemy import text
from temporalio.client import Client, WorkflowHistory
from turn_fixtures import Ledger, RunningTurns, catalog_of, doubted, pay_tool, running_turns, yes

from signoff.contracts.audit import CloudEvent
from signoff.contracts.completion import Completion
from signoff.contracts.ids import TurnKey, event_workflow_id
from signoff.gateway.events.event_sender import EventSender
from signoff.registry.actor import Actor
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, respond

TASK = "mcp__up__task"
_RUN_EVENTS = 12
"""Events after which a recorded session begins its second run."""


async def history_of(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowHistory:
    """The history of a workflow as it is now."""
    return await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()


async def _ended(client: Client, store: Store, *script: Completion) -> WorkflowHistory:
    actors = [Actor(name="desk", model="scripted"), Actor(name="bank", model="scripted", tools=())]
    async with running_turns(client, store, "recording", catalog_of([], actors=actors), list(script)) as turns:
        key = await turns.start()
        await turns.signoff.result(key)
        return await history_of(client, key.workflow_id)


async def clarifying(client: Client, store: Store) -> WorkflowHistory:
    """A turn that ends with a question to its requester."""
    return await _ended(client, store, respond("which one?", "clarifying"))


async def awaiting(client: Client, store: Store) -> WorkflowHistory:
    """A turn that ends while it waits for a late result."""
    return await _ended(client, store, respond("it is on its way", "awaiting"))


async def delegated(client: Client, store: Store) -> WorkflowHistory:
    """A turn that ends as others do the work."""
    return await _ended(client, store, respond("the bank does it", "delegated"))


async def passed(client: Client, store: Store) -> WorkflowHistory:
    """A turn that passes the conversation on."""
    return await _ended(client, store, respond("the bank will tell you", "passed", passTo="bank"))


async def failed(client: Client, store: Store) -> WorkflowHistory:
    """A turn whose model answers twice with nothing."""
    return await _ended(client, store, respond(""), respond(""))


@asynccontextmanager
async def _talking(client: Client, store: Store) -> AsyncIterator[Talk]:
    catalog = catalog_of([pay_tool(Ledger())])
    async with running_turns(client, store, "recording", catalog, ScriptedModel(react)) as turns:
        yield talk(turns)


async def session_idle(client: Client, store: Store) -> WorkflowHistory:
    """An open session whose turn has ended."""
    async with _talking(client, store) as session:
        await session.say("hello", "a")
        await session.answer("a")
        return await history_of(client, session.key.workflow_id)


async def session_waiting(client: Client, store: Store) -> WorkflowHistory:
    """An open session whose turn waits for people."""
    async with _talking(client, store) as session:
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        return await history_of(client, session.key.workflow_id)


async def session_went_on(client: Client, store: Store) -> WorkflowHistory:
    """The first run of a session, which went on in another one."""
    async with _talking(client, store) as session:
        await session.begin(events_per_run=_RUN_EVENTS)
        first = (await session.handle.describe()).run_id
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await _talk_until_next_run(session)
        return await history_of(client, session.key.workflow_id, first)


async def session_next_run(client: Client, store: Store) -> WorkflowHistory:
    """The second run of a session; its first one began a turn that is approved now."""
    async with _talking(client, store) as session:
        await session.begin(events_per_run=_RUN_EVENTS)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await _talk_until_next_run(session)
        await session.turns.signoff.decide(yes(session.turn_key("a")))
        await session.answer("a")
        return await history_of(client, session.key.workflow_id)


async def _talk_until_next_run(session: Talk) -> None:
    number = 0
    while await session.runs() < 2:
        number += 1
        await session.say("hello", f"b{number}")
        await session.answer(f"b{number}")


async def session_cancelled(client: Client, store: Store) -> WorkflowHistory:
    """A session that was cancelled from outside."""
    async with _talking(client, store) as session:
        await session.say("hello", "a")
        await session.answer("a")
        await session.handle.cancel()
        with suppress(Exception):
            await session.handle.result()
        return await history_of(client, session.key.workflow_id)


@asynccontextmanager
async def _on_server(client: Client, store: Store, name: str) -> AsyncIterator[tuple[RunningTurns, TurnKey, Upstream]]:
    """A turn whose call an MCP server answers with the task of that name."""
    with tempfile.TemporaryDirectory() as folder:
        upstream = Upstream(Path(folder))
        async with by_http(upstream) as server:
            tool = imported_tool(server, "task", requires_approval=True, effect="Begin {text}")
            catalog = catalog_of([tool], mcp_servers=[server])
            script = [calls((TASK, {"text": name})), respond("done")]
            async with running_turns(client, store, "recording", catalog, script) as turns:
                key = await turns.start()
                await turns.waiting(key)
                await turns.signoff.decide(yes(key))
                yield turns, key, upstream


async def task_running(client: Client, store: Store) -> WorkflowHistory:
    """A task that its server still works on."""
    async with _on_server(client, store, "forever") as (_, key, upstream):
        while not upstream.looks:
            await asyncio.sleep(0.05)
        return await history_of(client, key.workflow_id)


async def task_cancelled(client: Client, store: Store) -> WorkflowHistory:
    """A task whose turn was cancelled."""
    async with _on_server(client, store, "forever") as (turns, key, upstream):
        while not upstream.looks:
            await asyncio.sleep(0.05)
        await turns.signoff.cancel_turn(key)
        await turns.signoff.result(key)
        return await history_of(client, key.workflow_id)


async def task_complete(client: Client, store: Store) -> WorkflowHistory:
    """A task that came to a result."""
    return await _task_ended(client, store, "a7")


async def task_failed(client: Client, store: Store) -> WorkflowHistory:
    """A task that failed."""
    return await _task_ended(client, store, "failed")


async def task_lost(client: Client, store: Store) -> WorkflowHistory:
    """A task that its server does not know any more; people are asked what happened, and one says that it did."""
    async with _on_server(client, store, "lost") as (turns, key, _):
        await turns.until(key, doubted)
        await turns.signoff.decide(yes(key, revision=2, verdict="happened", result="done"))
        await turns.signoff.result(key)
        return await history_of(client, key.workflow_id)


async def _task_ended(client: Client, store: Store, name: str) -> WorkflowHistory:
    async with _on_server(client, store, name) as (turns, key, _):
        await turns.signoff.result(key)
        return await history_of(client, key.workflow_id)


async def _handled(
    client: Client,
    store: Store,
    handler: Callable[[CloudEvent], Awaitable[None]],
    begun: asyncio.Event | None = None,
    over: asyncio.Event | None = None,
) -> WorkflowHistory:
    """The run of a handler once it has ended; or once it has `begun`, after which `over` lets it end."""
    feed = Subscription("feed", ("freeze.started",), handler=handler, timeout=60.0)
    async with gateway_rig(
        client,
        store,
        "recording",
        catalog_of_ledger=lambda ledger: catalog_of([pay_tool(ledger)], subscriptions=[feed]),
        model=ScriptedModel(react),
    ) as rig:
        sender = EventSender(rig.deps, feed)
        await sender.step()
        await rig.http.post("/v1/freezes?as=approver", json={"reason": "drill"})
        sending = asyncio.create_task(sender.step())
        key = await _owed(store)
        if begun is not None and over is not None:
            await begun.wait()
            found = await history_of(client, event_workflow_id(store.id, key))
            over.set()
            await sending
            return found
        await sending
        return await history_of(client, event_workflow_id(store.id, key))


async def _owed(store: Store) -> str:
    """The key of the event that the subscription is owed, once there is one."""
    query = text("SELECT key FROM event_deliveries")
    while (key := await store.run(lambda connection: connection.scalar(query))) is None:
        await asyncio.sleep(0.02)
    return str(key)


async def handler_running(client: Client, store: Store) -> WorkflowHistory:
    """A handler that has not answered yet."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(event: CloudEvent) -> None:
        begun.set()
        await over.wait()

    return await _handled(client, store, wait, begun, over)


async def handler_done(client: Client, store: Store) -> WorkflowHistory:
    """A handler that took its event."""

    async def take(event: CloudEvent) -> None:
        return

    return await _handled(client, store, take)


async def handler_failed(client: Client, store: Store) -> WorkflowHistory:
    """A handler that raised an error."""

    async def fail(event: CloudEvent) -> None:
        raise ValueError("no such account")

    return await _handled(client, store, fail)


async def running(client: Client, store: Store) -> WorkflowHistory:
    """A turn whose tool runs."""
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


KIND_SCENARIOS: dict[str, Callable[[Client, Store], Awaitable[WorkflowHistory]]] = {
    scenario.__name__: scenario
    for scenario in (
        running, clarifying, awaiting, delegated, passed, failed,
        session_idle, session_waiting, session_went_on, session_next_run, session_cancelled,
        task_running, task_cancelled, task_complete, task_failed, task_lost,
        handler_running, handler_done, handler_failed,
    )
}  # fmt: skip
