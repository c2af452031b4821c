import asyncio
import types
from typing import Any

import pytest
from activity_kit import ARGS, begun, environment, free, task_for, worker_deps
from tables import table
from turn_fixtures import Ledger

from signoff.activities import run_handler
from signoff.activities.results.result_processor import ProcessedResult, ResultProcessor
from signoff.activities.run_handler import HandlerExecution
from signoff.contracts.call import RunRight
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import Tool
from signoff.store.store import Store


def execution_of(store: Store, tool: Tool, **fields: Any) -> HandlerExecution:
    deps = worker_deps(store, tool, **fields)
    return HandlerExecution(deps, tool, ResultProcessor(deps, tool))


@table(
    ("fields", "reduced", "copied"),
    ({"read_only": True}, False, False),
    ({"read_only": True}, True, True),
    ({"read_only": True, "scope": "specialist", "justification": "the desk alone reads"}, False, True),
    ({"read_only": True, "secrets": ("to",), "effect": ""}, False, True),
    ({}, False, True),
)
async def test_handler_gets_a_copy_of_arguments_that_are_read_later(
    store: Store, fields: dict[str, Any], reduced: bool, copied: bool
) -> None:
    ledger, args, reducers = Ledger(), {**ARGS}, ReducerRegistry()
    if reduced:
        reducers.register(ToolReducer("pay", lambda result, given: result))
    tool = free(ledger, **fields)
    execution = execution_of(store, tool, reducers=reducers)
    await environment().run(execution.run, task_for(tool), RunRight(), args, "key")
    ((_, given, key),) = ledger.rows
    assert (given, key) == (args, "key")
    assert (given is not args) is copied


async def test_duration_of_a_handler_is_in_whole_milliseconds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter((100.0, 102.5))
    monkeypatch.setattr(run_handler, "time", types.SimpleNamespace(monotonic=lambda: next(moments)))
    tool = free(Ledger())
    made = await environment().run(execution_of(store, tool).run, task_for(tool), RunRight(), {**ARGS}, "key")
    assert (made.outcome.code, made.outcome.duration_ms) == ("ok", 2_500)


async def test_cancellation_of_handler_and_activity_cancels_the_activity(store: Store) -> None:
    handlers: list[asyncio.Task[Any]] = []
    started = asyncio.Event()

    async def waits(args: Any, ctx: Any) -> Any:
        handler = asyncio.current_task()
        assert handler is not None
        handlers.append(handler)
        started.set()
        await asyncio.Event().wait()

    tool, env = free(Ledger(), handler=waits, read_only=True), environment()
    execution = execution_of(store, tool)

    async def process() -> ProcessedResult:
        return await execution.run(task_for(tool), RunRight(), {**ARGS}, "key")

    running: asyncio.Future[Any] = asyncio.ensure_future(env.run(process))
    await begun(running, started)
    handlers[0].cancel()
    env.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
