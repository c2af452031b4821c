import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from temporalio import activity
from temporalio.client import Client
from turn_fixtures import Ledger, TurnRig, catalog_of, no, pay_tool, running_turns

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import ModelUnavailable, StoreUnavailable
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.store import Store
from signoff.testing.scripted_model import ScriptedModel, calls, respond
from signoff.workflows import options

INLINE: dict[str, Any] = {
    "scope": "specialist",
    "routing": "bypass",
    "bypass_routing": BypassRouting(reason="only ever reads the price list"),
    "justification": "the price desk alone looks prices up",
}


def unlucky(ledger: Ledger, name: str, error: Exception | None = None, times: int = 2, **fields: Any) -> Tool:
    def answer(args: dict[str, Any], ctx: ToolContext) -> str:
        if sum(row[0] == name for row in ledger.rows) <= times:
            raise error or ConnectionResetError("reset by peer")
        return f"at attempt {ctx.attempt}"

    return pay_tool(ledger, False, name=name, effect="", handler=ledger.handler(name, answer), **fields)


@pytest.mark.row("X18", "F39", "F41")
async def test_broken_connection_is_retried_only_for_read_only_and_idempotent_tools(
    turn_rig: TurnRig, ledger: Ledger
) -> None:
    tools = [
        unlucky(ledger, "read", read_only=True),
        unlucky(ledger, "same", idempotent=True),
        unlucky(ledger, "act"),
        unlucky(ledger, "once", read_only=True, attempts=1),
        unlucky(ledger, "never", read_only=True, times=9),
        unlucky(ledger, "inline", read_only=True, times=1, attempts=2, **INLINE),
    ]
    batch = calls(*((tool.name, {"amount": number}) for number, tool in enumerate(tools)))
    async with turn_rig.running(tools, [batch, respond("done")]) as turns:
        key = await turns.start()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert [(outcome.tool, outcome.code, outcome.value.inline) for outcome in result.calls] == [
        ("read", "ok", "at attempt 3"),
        ("same", "ok", "at attempt 3"),
        ("act", "execution_failed", "reset by peer"),
        ("once", "execution_failed", "reset by peer"),
        ("never", "execution_failed", "reset by peer"),
        ("inline", "ok", "at attempt 2"),
    ]
    assert Counter(name for name, _, _ in ledger.rows) == {
        "read": 3, "same": 3, "act": 1, "once": 1, "never": 3, "inline": 2,
    }  # fmt: skip
    keys = {name: {key for row, _, key in ledger.rows if row == name} for name in ("same", "act")}
    assert len(keys["same"]) == 1
    assert keys["same"].isdisjoint({""} | keys["act"])


class _AwayForTools(Store):
    async def run(self, work: Callable[[Connection], Any]) -> Any:
        if activity.in_activity() and activity.info().activity_type == "inline":
            raise StoreUnavailable("PostgreSQL at `db.internal` did not answer")
        return await super().run(work)


async def test_read_only_call_fails_with_its_store_and_the_turn_continues(
    client: Client, tmp_path: Path, task_queue: str, ledger: Ledger
) -> None:
    store = await _AwayForTools.open(f"sqlite:///{tmp_path}/signoff.db")
    tools = [unlucky(ledger, "inline", read_only=True, attempts=2, **INLINE)]
    batch = calls(("inline", {"amount": 1}))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        running = running_turns(client, store, task_queue, catalog_of(tools), [batch, respond("done")])
        turns = await stack.enter_async_context(running)
        key = await turns.start()
        result = await turns.signoff.result(key)
        await turns.replays(key)
    text = "It could not be run: the store did not answer."
    assert [(call.code, call.value.inline) for call in result.calls] == [("execution_failed", text)]
    assert ledger.rows == []


@pytest.mark.row("B83", "F39", "N19")
async def test_permanent_failures_are_not_retried(turn_rig: TurnRig, ledger: Ledger) -> None:
    tools = [
        unlucky(ledger, "wrong", ValueError("no such account"), read_only=True),
        pay_tool(
            ledger, False, name="fails", effect="", read_only=True,
            handler=ledger.handler("fails", lambda args, ctx: ToolFailure("shut")),
        ),
        pay_tool(ledger, True, name="asks", effect="", read_only=True),
    ]  # fmt: skip
    batch = calls(("wrong", {"amount": 1}), ("fails", {"amount": 1}), ("asks", {"amount": 1}), ("wrong", {}))
    async with turn_rig.running(tools, [batch, respond("done")]) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(no(key, "c1.3"))
        events = await turns.events(key)
    codes = ["execution_failed", "execution_failed", "denied", "input_invalid"]
    assert [outcome.code for outcome in result.calls] == codes
    assert sorted(name for name, _, _ in ledger.rows) == ["fails", "wrong"]
    # Two completions and two tools.
    assert events.count("ACTIVITY_TASK_SCHEDULED") == 4


@pytest.mark.row("F42")
async def test_each_tool_has_its_own_timeout(turn_rig: TurnRig) -> None:
    async def slow(args: dict[str, Any], ctx: ToolContext) -> str:
        await asyncio.Event().wait()
        return "late"

    tools = [
        pay_tool(Ledger(), False, name="read", effect="", handler=slow, read_only=True, timeout=0.1, attempts=1),
        pay_tool(Ledger(), False, name="act", effect="", handler=slow, timeout=0.1),
    ]
    batch = calls(("read", {"amount": 1}), ("act", {"amount": 1}))
    async with turn_rig.running(tools, [batch, respond("done")]) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(no(key, "c1.2"))
    assert [outcome.code for outcome in result.calls] == ["execution_failed", "in_doubt"]
    assert result.calls[0].value.inline == "no answer within 0.1 s"


@pytest.mark.row("B83")
async def test_busy_model_is_retried(turn_rig: TurnRig) -> None:
    asked: list[float] = []

    def react(request: CompletionRequest) -> Completion:
        asked.append(asyncio.get_running_loop().time())
        if len(asked) < 3:
            raise ModelUnavailable("busy")
        return respond("done")

    async with turn_rig.running([], ScriptedModel(react)) as turns:
        result = await turns.signoff.result(await turns.start())
    first, second, third = asked
    assert (result.state, result.completions) == ("complete", 1)
    # Only a lower bound holds on a busy machine: a pause is never shorter than configured.
    assert (second - first >= 1.0, third - second >= 2.0) == (True, True)
    assert options.MODEL["schedule_to_close_timeout"] == timedelta(minutes=10)
