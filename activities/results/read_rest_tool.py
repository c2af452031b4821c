"""Runs the built-in tool `read_rest`."""

import dataclasses
from typing import Any, Final

from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import RESULT_BYTES
from signoff.contracts.names import READ_REST
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolFailure
from signoff.store.store import Store
from signoff.store.truncated_results import TruncatedResults

_MOST: Final = RESULT_BYTES
"""No text has more characters than this."""


def bind_to_store(tool: Tool, store: Store) -> Tool:
    if tool.name != READ_REST:
        return tool

    async def read(args: dict[str, Any], context: ToolContext) -> str | ToolFailure:
        return await read_rest(store, args, context)

    return dataclasses.replace(tool, handler=read)


async def read_rest(store: Store, args: dict[str, Any], context: ToolContext) -> str | ToolFailure:
    """Return a line that describes the piece, and the piece, within the call's budget.

    The handle must belong to the calling turn. Raises `StoreUnavailable`.
    """
    turn, start = TurnKey(context.tenant_id, context.session_id, context.turn_id), int(args["start"])
    # Count the words around the piece, or the result would be truncated again.
    chars = context.result_budget_chars - len(_words("", start, _MOST, _MOST, _MOST))
    piece = await TruncatedResults(store).read(turn, args["handle"], start, chars)
    if piece is None:
        return ToolFailure(
            "there is no such handle in this turn; use it exactly as the result named it", "input_invalid"
        )
    if start >= piece.total:
        return ToolFailure(f"the text has {piece.total} characters; start below that", "input_invalid")
    return _words(piece.text, start, start + len(piece.text), piece.total, piece.next_start)


def _words(text: str, start: int, end: int, total: int, next_start: int | None) -> str:
    more = "this is its end" if next_start is None else f"go on with start={next_start}"
    return f"Characters {start} to {end} of {total}; {more}\n{text}"


def how_to_read_on(handle: str, start: int) -> str:
    return f'The rest is read by {READ_REST}(handle="{handle}", start={start}).'
