"""Routes and steps: where in a conversation an actor stands, and which tools it has there (F05, F06)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from signoff.registry.hooks import Select
from signoff.registry.tool import Tool

LayerMode: TypeAlias = Literal["inherit", "only"]
Shadowing: TypeAlias = Literal["allow", "warn", "forbid"]


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """One tool of an actor, route or step, with more to say than its name or itself.

    `tool` is a name (a reference: resolved in the registry, then the route, then the actor) or a tool of one's own.
    `optional`: a reference that nothing answers to is left out (F28). `min_step`: seen from that step on (F11).
    `loosens` is the reason why what it shadows need not be obeyed (X03); for a reviewer to read.
    """

    tool: str | Tool
    optional: bool = False
    min_step: str = ""
    loosens: str = ""

    @property
    def name(self) -> str:
        """The name the model would call."""
        return self.tool if isinstance(self.tool, str) else self.tool.name


ListedTool: TypeAlias = str | Tool | ToolUse
"""How a tool may be listed: by its name, as a tool of one's own, or as a `ToolUse` of either."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """What a route and a step have in common.

    Its tools come before those of the level around it; with `mode` `only` there are no others.
    `tool_filter` is CEL over `tool`, `actor` and `ctx`: what it is not exactly true of is not seen here (F12).
    `select` chooses once more, by a function, for each completion; where it fails, nothing is seen.
    """

    name: str
    description: str = ""
    tools: tuple[ListedTool, ...] = ()
    mode: LayerMode = "inherit"
    tool_filter: str = ""
    select: Select | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Step(Level):
    """One step of a route.

    `requires` are data fields that must be there before the step's own tools are seen; `collect` are those that it is
    to bring, each with its JSON Schema or None. They are read from `data` in the context of the turn.
    """

    requires: tuple[str, ...] = ()
    collect: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Route(Level):
    """One course a conversation may take, with its steps in order."""

    steps: tuple[Step, ...] = ()


def tool_uses(listed: tuple[ListedTool, ...]) -> tuple[ToolUse, ...]:
    """`listed` in one form."""
    return tuple(each if isinstance(each, ToolUse) else ToolUse(tool=each) for each in listed)
