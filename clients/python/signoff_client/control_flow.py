"""Recognises the signals with which frameworks suspend a call. Some are exceptions, but none is an outcome."""

from typing import Any, Final, Literal

Suspension = Literal["", "resumed", "elsewhere"]
"""The next step: `resumed` runs the call again from its start, `elsewhere` ends it outside this program."""

# By name: the client imports no framework.
_ERRORS: Final[dict[str, Suspension]] = {
    "langgraph.errors.GraphInterrupt": "resumed",
    "strands.interrupt.InterruptException": "resumed",
    "pydantic_ai.exceptions.ApprovalRequired": "resumed",
    "pydantic_ai.exceptions.CallDeferred": "elsewhere",
    "temporalio.activity._CompleteAsyncError": "elsewhere",
    "temporalio.workflow.ContinueAsNewError": "elsewhere",
}
_RESULTS: Final[dict[str, Suspension]] = {
    "pydantic_ai.durable_exec._toolset._ApprovalRequired": "resumed",
    "pydantic_ai.durable_exec._toolset._CallDeferred": "elsewhere",
}
_LANGGRAPH_OUTPUT: Final = "temporalio.langgraph._activity.ActivityOutput"
FAILURE_TYPES: Final = frozenset({"StrandsInterrupt", "InterruptException", "GraphInterrupt", "ApprovalRequired"})
"""Error types of suspended activities, as workflows see them. Frameworks run these activities again."""


def suspension_of(error: BaseException | None) -> Suspension:
    """Return how an exception suspends a call; "" for an error of the call."""
    return next((_ERRORS[name] for each in type(error).__mro__ if (name := _name(each)) in _ERRORS), "")


def suspension_in(result: Any) -> Suspension:
    """Return how a result suspends a call. Some frameworks return the signal. "" for no signal."""
    name = _name(type(result))
    if name == _LANGGRAPH_OUTPUT:
        return "" if result.langgraph_interrupts is None else "resumed"
    return _RESULTS.get(name, "")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
