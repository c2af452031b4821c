"""Routes and steps of an actor, and the tools that it has there (F05, F06)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from signoff.registry.hooks import Select
from signoff.registry.tool import Tool

LayerMode: TypeAlias = Literal["inherit", "only"]
Shadowing: TypeAlias = Literal["allow", "warn", "forbid"]


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """One entry in the tools of an actor, route or step."""

    tool: str | Tool
    """A name, resolved in the registry, then the route, then the actor; or a tool of one's own."""
    optional: bool = False
    """Whether a name that nothing answers to is left out (F28)."""
    min_step: str = ""
    """The step of the route from which it is seen (F11)."""
    loosens: str = ""
    """Why the tools that it shadows need not be obeyed (X03); for a reviewer to read."""

    @property
    def name(self) -> str:
        """The name the model would call."""
        return self.tool if isinstance(self.tool, str) else self.tool.name


ListedTool: TypeAlias = str | Tool | ToolUse
"""How a tool may be listed: by its name, as a tool of one's own, or as a `ToolUse` of either."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The common fields of a route and a step."""

    name: str
    """The name."""
    description: str = ""
    """For people."""
    tools: tuple[ListedTool, ...] = ()
    """Its tools; they come before those of the level around it."""
    mode: LayerMode = "inherit"
    """With `only` there are no other tools."""
    tool_filter: str = ""
    """CEL over `tool`, `actor` and `ctx`: a tool of which it is not exactly true is not seen here (F12)."""
    tool_filter_reason: str = ""
    """Why the filter refuses, for the trace and for the model that calls such a tool all the same; without it the tool
    reads as if it did not exist."""
    select: Select | None = field(default=None, repr=False, compare=False)
    """Chooses once more, for each completion; where it fails, nothing is seen."""


@dataclass(frozen=True, kw_only=True)
class Step(Level):
    """One step of a route. Data fields are read from `data` in the context of the turn."""

    requires: tuple[str, ...] = ()
    """Data fields that must be there before the step's own tools are seen."""
    collect: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Data fields that the step is to bring, each with its JSON Schema or None."""


@dataclass(frozen=True, kw_only=True)
class Route(Level):
    """One course a conversation may take, with its steps in order."""

    steps: tuple[Step, ...] = ()
    """Its steps, in order."""


def tool_uses(listed: tuple[ListedTool, ...]) -> tuple[ToolUse, ...]:
    """Returns each of `listed` as a `ToolUse`."""
    return tuple(each if isinstance(each, ToolUse) else ToolUse(tool=each) for each in listed)
