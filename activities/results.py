"""What a handler, or a probe in its place, gave as a call's one outcome: checked, shortened, cut, fenced and kept."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from temporalio import activity

from signoff.activities.handler import redacted
from signoff.activities.rest import how_to_read_on
from signoff.activities.room import Room
from signoff.contracts.call import CallCode, CallOutcome, Permit
from signoff.contracts.canonical import nesting
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey, completion_of
from signoff.contracts.limits import MAX_NESTING, RESULT_BYTES
from signoff.registry.output import output_problem
from signoff.registry.reducers import reduced
from signoff.registry.result import ReducerInput, Result, ToolFailure, ToolResult, jsonable, render_value, trim
from signoff.registry.tool import Tool
from signoff.registry.untrusted import fenced
from signoff.store.content import json_bytes, to_content
from signoff.store.rests import Rests

T = TypeVar("T")

STORE_PAUSE = 1.0
OUTPUT: Final = "output"
"""The gate of a call that ran and whose result does not fit its tool's output schema."""


class Results:
    """Outcomes of one tool. `pause` is how many seconds it waits before it asks a store again that did not answer."""

    def __init__(self, room: Room, tool: Tool, pause: float = STORE_PAUSE) -> None:
        self._room = room
        self._store = room.store
        self._rests = Rests(room.store)
        self._tool = tool
        self._pause = pause

    async def of(self, permit: Permit, args: Mapping[str, Any], value: Any, budget_chars: int) -> CallOutcome:
        """The outcome of the permitted call, which returned `value`."""
        result = value if isinstance(value, ToolResult | ToolFailure) else ToolResult(value)
        if isinstance(result, ToolFailure):
            return await self._told(permit, args, result, budget_chars)
        problem = output_problem(self._tool, result)
        whole = result.structured
        if problem:
            whole = result.value if whole is None else whole
            outcome = await self._told(permit, args, ToolFailure(problem), budget_chars)
            outcome = outcome.model_copy(update={"gate": OUTPUT})
        else:
            outcome = await self._told(permit, args, result, budget_chars)
            updates = {
                "data_update": await self._update("data", result.data_update),
                "context_update": await self._update("context", result.context_update),
            }
            outcome = outcome.model_copy(update=updates)
        return outcome.model_copy(update={"structured": await self._structured(whole), "cost": _usd(result.cost)})

    async def failed(self, permit: Permit, args: Mapping[str, Any], text: str, budget_chars: int) -> CallOutcome:
        """The outcome of a call that failed with these words, without the values of its secret arguments."""
        return await self._told(permit, args, ToolFailure(text), budget_chars)

    async def patiently(self, keep: Callable[[], Awaitable[T]]) -> T:
        """What `keep` returns, once the store answers."""
        # The effect has happened; giving up here would leave it in doubt, so this waits for the store.
        while True:
            try:
                return await keep()
            except StoreUnavailable:
                activity.logger.warning("the outcome of %s waits for the store", self._tool.name)
                await asyncio.sleep(self._pause)

    async def _told(self, permit: Permit, args: Mapping[str, Any], result: Result, budget_chars: int) -> CallOutcome:
        """The outcome with the text of `result` as the model reads it: reduced, then cut, then fenced (N11)."""
        tool = self._tool
        text = self._short(permit, args, result)
        cut = trim(text, budget_chars)
        told = fenced(cut.text, tool.name) if tool.untrusted_output else cut.text
        rest, note = await self._rest(permit, text, budget_chars) if cut.truncated else ("", "")
        return CallOutcome(
            call=permit.call,
            tool=tool.name,
            code=result.code if isinstance(result, ToolFailure) else "ok",
            gate="execute",
            value=await self._content(told),
            truncated=cut.truncated,
            original_chars=cut.original_chars,
            rest=rest,
            note=note,
        )

    def _short(self, permit: Permit, args: Mapping[str, Any], result: Result) -> str:
        """The text of `result` as its reducer leaves it; of an error, without the values of secret arguments."""
        plain: Result
        if isinstance(result, ToolFailure):
            told = redacted(render_value(result.message), args, self._tool.masked_arguments)
            plain = ToolFailure(told, result.code)
        else:
            plain = ToolResult(render_value(result.value), result.structured, result.cost)
        reducer = self._room.catalog.reducers.get(self._tool.name)
        short = reduced(reducer, plain, ReducerInput(args, completion_of(permit.call)))
        return render_value(short.message if isinstance(short, ToolFailure) else short.value)

    async def _rest(self, permit: Permit, text: str, start: int) -> tuple[str, str]:
        """The handle to the whole of `text`, and what an actor that can use it is told."""
        ctx = permit.ctx
        turn = TurnKey(ctx.tenant, ctx.session, ctx.turn)
        handle = await self.patiently(lambda: self._rests.keep(turn, self._tool.name, text))
        actor = self._room.catalog.actors.get(ctx.actor)
        return handle, how_to_read_on(handle, start) if actor is not None and actor.read_rest else ""

    async def _content(self, value: Any) -> Content:
        return await self.patiently(lambda: to_content(self._store, value))

    async def _update(self, what: str, value: Any) -> Content | None:
        """A wish to change what a conversation holds; what is no plain JSON object is warned of and left out (F44)."""
        if value is None:
            return None
        plain = _plain(value)
        if isinstance(value, Mapping) and _same(plain, value) and len(json_bytes(plain)) <= RESULT_BYTES:
            return await self._content(plain)
        activity.logger.warning("the %s update of %s is no plain JSON object: left out", what, self._tool.name)
        return None

    async def _structured(self, value: Any) -> Content | None:
        if value is None:
            return None
        plain = _plain(value)
        if len(json_bytes(plain)) <= RESULT_BYTES:
            return await self._content(plain)
        activity.logger.warning("the structured result of %s is over %d bytes: left out", self._tool.name, RESULT_BYTES)
        return None


def plain_outcome(call: str, tool: str, code: CallCode, text: str) -> CallOutcome:
    """An outcome with words for the model."""
    return CallOutcome(call=call, tool=tool, code=code, gate="execute", value=Content(inline=text))


def _plain(value: Any) -> Any:
    """`value` as JSON data that a record can hold; what is nested too deeply for one is only named."""
    plain = jsonable(value)
    return f"<{type(value).__name__}>" if nesting(plain) > MAX_NESTING else plain


def _same(plain: Any, value: Any) -> bool:
    try:
        return bool(plain == value)
    except Exception:
        # What a tool returned may hold anything, also what does not let itself be compared.
        return False


def _usd(cost: Any) -> float:
    # The effect has happened: a cost that is no number must not turn its result into an error.
    return float(cost) if isinstance(cost, int | float) and math.isfinite(cost) else 0.0
