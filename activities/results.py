"""What a handler, or a probe in its place, gave as a call's one outcome: rendered, trimmed and kept where it fits."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from temporalio import activity

from signoff.activities.handler import redacted
from signoff.contracts.call import CallCode, CallOutcome
from signoff.contracts.canonical import nesting
from signoff.contracts.content import Content
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.limits import MAX_NESTING, RESULT_BYTES
from signoff.registry.result import ToolFailure, ToolResult, jsonable, render_value, trim
from signoff.registry.tool import Tool
from signoff.store.content import json_bytes, to_content
from signoff.store.store import Store

T = TypeVar("T")

STORE_PAUSE = 1.0


class Results:
    """Outcomes of one tool. `pause` is how many seconds it waits before it asks a store again that did not answer."""

    def __init__(self, store: Store, tool: Tool, pause: float = STORE_PAUSE) -> None:
        self._store = store
        self._tool = tool
        self._pause = pause

    async def of(self, call: str, args: Mapping[str, Any], value: Any, budget_chars: int) -> CallOutcome:
        """The outcome of a call that returned `value`."""
        result = value if isinstance(value, ToolResult | ToolFailure) else ToolResult(value)
        if isinstance(result, ToolFailure):
            return await self.failed(call, args, result.message, budget_chars)
        cut = trim(render_value(result.value), budget_chars)
        return CallOutcome(
            call=call,
            tool=self._tool.name,
            code="ok",
            gate="execute",
            value=await self._content(cut.text),
            structured=await self._structured(result.structured),
            cost=_usd(result.cost),
            truncated=cut.truncated,
            original_chars=cut.original_chars,
        )

    async def failed(self, call: str, args: Mapping[str, Any], text: str, budget_chars: int) -> CallOutcome:
        """The outcome of a call that failed with these words, without the values of its secret arguments."""
        told = redacted(render_value(text), args, self._tool.masked_arguments)
        cut = trim(told, budget_chars)
        failure = plain_outcome(call, self._tool.name, "execution_failed", "")
        return failure.model_copy(
            update={
                "value": await self._content(cut.text),
                "truncated": cut.truncated,
                "original_chars": cut.original_chars,
            }
        )

    async def patiently(self, keep: Callable[[], Awaitable[T]]) -> T:
        """What `keep` returns, once the store answers."""
        # The effect has happened; giving up here would leave it in doubt, so this waits for the store.
        while True:
            try:
                return await keep()
            except StoreUnavailable:
                activity.logger.warning("the outcome of %s waits for the store", self._tool.name)
                await asyncio.sleep(self._pause)

    async def _content(self, value: Any) -> Content:
        return await self.patiently(lambda: to_content(self._store, value))

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


def _usd(cost: Any) -> float:
    # The effect has happened: a cost that is no number must not turn its result into an error.
    return float(cost) if isinstance(cost, int | float) and math.isfinite(cost) else 0.0
