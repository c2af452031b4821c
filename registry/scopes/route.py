"""Routes and steps of an actor, and the tools that it has there (F05, F06)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from signoff.registry.hooks import Select
from signoff.registry.tool import Tool
from signoff.registry.tool_fields import IN_CODE, FieldSpec

LayerMode: TypeAlias = Literal["inherit", "only"]
Shadowing: TypeAlias = Literal["allow", "warn", "forbid"]


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """A tool that a route or step names, with more to say than its name."""

    tool: Annotated[str | Tool, FieldSpec(key=IN_CODE)]
    """A name, resolved in the registry, then the route, then the actor; or a tool of one's own."""
    optional: bool = False
    """It may be missing."""
    min_step: str = ""
    """The tool is seen from this step of the route on."""
    loosens: str = ""
    """Why the policies of the tools that it shadows need not hold, for a reviewer."""

    @property
    def name(self) -> str:
        """The name the model would call."""
        return self.tool if isinstance(self.tool, str) else self.tool.name


ListedTool: TypeAlias = str | Tool | ToolUse
"""How a tool may be listed: by its name, as a tool of one's own, or as a `ToolUse` of either."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The common fields of a route and a step."""

    name: Annotated[str, FieldSpec(key=IN_CODE)]
    """The name."""
    description: str = ""
    """For people."""
    tools: Annotated[tuple[ListedTool, ...], FieldSpec(key=list[Any])] = ()
    """Names, or names with more to say.

    They come before those of the level around it.
    """
    mode: LayerMode = "inherit"
    """With `only` there are no other tools than these."""
    tool_filter: str = ""
    """CEL over `tool`, `actor` and `ctx`: a tool is seen only if it is true."""
    tool_filter_reason: str = ""
    """Why the filter refuses, for the trace and the model. Without one such a tool reads as if it did not exist."""
    select: Annotated[Select | None, FieldSpec(key=str)] = field(default=None, repr=False, compare=False)
    """`module:function` that chooses among the tools that would be seen. If it fails, none is seen."""


@dataclass(frozen=True, kw_only=True)
class Step(Level):
    """One step of a route.

    Data fields are read from `data` in the context of the turn.
    """

    requires: tuple[str, ...] = ()
    """Data that its tools wait for."""
    collect: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    """Data that it brings: JSON Schema by field."""


@dataclass(frozen=True, kw_only=True)
class Route(Level):
    """One course a conversation may take, with its steps in order."""

    steps: Annotated[tuple[Step, ...], FieldSpec(key=dict[str, Any])] = ()
    """Its steps, in order."""


def tool_uses(listed: tuple[ListedTool, ...]) -> tuple[ToolUse, ...]:
    """Returns each of `listed` as a `ToolUse`."""
    return tuple(each if isinstance(each, ToolUse) else ToolUse(tool=each) for each in listed)
