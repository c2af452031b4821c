"""An actor: a model with instructions and the tools it may use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from signoff.contracts.activity_messages import TurnLimits
from signoff.registry.hooks import Select
from signoff.registry.results.domain_data import DomainMerge
from signoff.registry.scopes.route import Route, Shadowing, Use, uses
from signoff.registry.tool import Tool


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What an actor does without where people come by one channel; no other rule brings it back (E12)."""

    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Actor:
    """A declared actor. `tools` None means every tool, `()` means none (N04); its order is what the model sees.

    `toolset`, `allowed_plugins`, `allowed_mcp_servers` and `allowed_mcp_tools` (bare names by server) are its filters,
    see registry/gates/actor_filters.py; None is no filter, empty lets nothing through. `surfaces` are by channel.
    `read_rest` gives it the framework's own tool of that name, with which it reads what of a result was cut off. `mode`
    `sequential` runs the calls of one completion one after the other; `on_failure` `abort_siblings` stops those beside
    one that fails, as far as they can be (X17). `own_tools` are this actor's alone, `routes` where it may stand and
    what it has there (registry/scopes/route.py); whatever they name must be in `tools` as well, if there is a list.
    `shadowing` says whether one of them may have the name of another tool (Q3): a shadow never asks fewer people than
    what it shadows. `select` is a function that chooses, for each completion, which of the tools that would be seen
    are. `domain_data` is the JSON Schema of data that its answers may bring, `domain_merge` how they join those that
    the turn began with (registry/results/domain_data.py). `model` names provider and model (`openai:gpt-5`,
    `scripted:module:attr`); `model_settings` go to it as they are.
    """

    name: str
    model: str
    description: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    toolset: str | None = None
    allowed_plugins: tuple[str, ...] | None = None
    allowed_mcp_servers: tuple[str, ...] | None = None
    allowed_mcp_tools: Mapping[str, tuple[str, ...]] | None = None
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    read_rest: bool = False
    mode: Literal["parallel", "sequential"] = "parallel"
    on_failure: Literal["continue", "abort_siblings"] = "continue"
    limits: TurnLimits = field(default_factory=TurnLimits)
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    domain_data: Mapping[str, Any] | None = None
    domain_merge: DomainMerge = "replace"
    own_tools: tuple[Tool | Use, ...] = ()
    routes: tuple[Route, ...] = ()
    shadowing: Shadowing = "forbid"
    select: Select | None = field(default=None, repr=False, compare=False)

    @property
    def own_names(self) -> frozenset[str]:
        """The names of the tools that are its own, at whatever place."""
        return frozenset(tool.name for tool in self.own)

    @property
    def own(self) -> tuple[Tool, ...]:
        """The tools that are its own, at whatever place; two of them may have one name."""
        steps = (step for route in self.routes for step in route.steps)
        listed = (self.own_tools, *(route.tools for route in self.routes), *(step.tools for step in steps))
        return tuple(use.tool for each in listed for use in uses(each) if not isinstance(use.tool, str))
