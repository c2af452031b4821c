"""What a tool may offer to find out whether a call happened of which nobody knows (`Tool.probe`)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from signoff.registry.tool_context import ToolContext


@dataclass(frozen=True)
class Happened:
    """It happened; `result` is what the handler would have returned, also a `ToolResult`."""

    result: Any = "It happened."


@dataclass(frozen=True)
class DidNotHappen:
    """It did not happen, and nothing that was begun under this key can still make it happen: it is run again.

    Say it only if that is so: of a worker that is merely slow nobody but the other side can tell.
    """


@dataclass(frozen=True)
class Unknown:
    """It cannot be told now: people are asked."""


ProbeAnswer: TypeAlias = Happened | DidNotHappen | Unknown
Probe: TypeAlias = Callable[[dict[str, Any], ToolContext], Awaitable[ProbeAnswer]]
"""`async (args, context)`; `context.idempotency_key` is the key under which the call was begun."""
