"""Resolves a name where an actor stands: the nearest layer wins, and the trace says why no other did (X03).

The order is transient > step inline > step reference > route > agent > registry > undeclared. The nearest layer that
names a tool owns the name: while it keeps the tool back, nothing behind it comes forward, so that waiting never loosens
anything.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from signoff.contracts.ids import is_tool_name
from signoff.policy.filter_expression import CompiledFilter
from signoff.registry.hooks import Select
from signoff.registry.registry import ToolRegistry, ToolResolver
from signoff.registry.tool import Tool

LayerName: TypeAlias = Literal["transient", "step_inline", "step_reference", "route", "agent", "registry", "undeclared"]
LayerOutcome: TypeAlias = Literal["won", "lost", "absent"]

TURN: Final = "*"
"""The last part of the place of a tool that a turn's own layer brings forward over a nearer one."""
_NAMES_KEPT: Final = 200
"""How many undeclared tools are kept by their names, of as many as agents make up."""
_NOT_NAMED: Final = "does not name it"


@dataclass(frozen=True)
class LayerTrace:
    """One layer's part in a resolution."""

    layer: LayerName
    """The layer."""
    where: str
    """The layer in words."""
    outcome: LayerOutcome
    """Whether its tool won, lost to a nearer one, or is not there."""
    why: str
    """Why."""


@dataclass(frozen=True)
class Layer:
    """The tools that one layer names."""

    name: LayerName
    """The layer."""
    where: str
    """The layer in words."""
    tools: Mapping[str, Tool] = field(default_factory=dict, repr=False)
    """The tools by name, in declared order."""
    closed: str = ""
    """Why none of them is seen here; empty where they are."""
    waits: tuple[str, ...] = ()
    """Data fields that they wait for."""
    later: Mapping[str, str] = field(default_factory=dict)
    """The step from which a name is seen, by name."""
    missing: tuple[str, ...] = ()
    """Optional references that nothing answers to."""

    def hidden_reason(self, name: str, tool: Tool, have: frozenset[str]) -> str:
        """Returns why its tool of this name is not seen; "" when it is. The framework's own are seen everywhere."""
        if self.closed and not tool.of_framework:
            return self.closed
        lacking = [each for each in self.waits if each not in have]
        if lacking:
            return f"waits for {', '.join(f'`{each}`' for each in lacking)}"
        return f"is seen from step `{self.later[name]}` on" if name in self.later else ""


class FilterAnswer(NamedTuple):
    """What the filters of a position say of one tool."""

    why: str = ""
    """Why it is kept back, for the trace; empty when it is not."""
    reason: str = ""
    """The author's words of the filter that refuses, which a model may read."""


@dataclass(frozen=True)
class ToolFilter:
    """The `tool_filter` of a step or route."""

    where: str
    """The step or route in words."""
    filter: CompiledFilter
    """The compiled expression."""
    reason: str = ""
    """Why it refuses, in its author's words."""


@dataclass(frozen=True)
class ResolutionContext:
    """The facts of a turn that a resolution needs beside the position."""

    have: frozenset[str] = frozenset()
    """The data fields that are there."""
    transient: tuple[str, ...] = ()
    """The names that the turn's own layer brings forward."""
    actor: Mapping[str, Any] = field(default_factory=dict)
    """The actor as filters see it."""
    ctx: Mapping[str, Any] = field(default_factory=dict)
    """The context as filters see it."""


NO_RESOLUTION_CONTEXT: Final = ResolutionContext()


@dataclass(frozen=True)
class Position:
    """One position of an actor: a route and a step, and the layers of tools there."""

    actor: str
    """The actor's name."""
    route: str
    """The route; empty outside of all."""
    step: str
    """The step; empty where the route has not come to one."""
    registry: ToolResolver = field(repr=False)
    """The registry of the catalog."""
    layers: tuple[Layer, ...] = ()
    """The layers, nearest first, without the transient one."""
    filters: tuple[ToolFilter, ...] = ()
    """The filters of step and route."""
    selects: tuple[Select, ...] = field(default=(), repr=False, compare=False)
    """Hooks that choose once more, asked by whoever may wait for them."""
    route_select: Select | None = field(default=None, repr=False, compare=False)
    """The hook that says whether its route is there; None where nobody is to be asked."""
    transient: Mapping[str, Tool | None] = field(default_factory=dict)
    """The tools of names in a turn's own layer where they differ from the registry's; None: it may not shadow."""

    @property
    def is_selected(self) -> bool:
        """Whether hooks choose what is seen here."""
        return bool(self.selects) or self.route_select is not None

    def resolve(
        self, name: str, moment: ResolutionContext, filtered: dict[str, FilterAnswer] | None = None
    ) -> "Resolution":
        """Resolves `name`: its tool, whether it is seen, and the trace.

        `filtered` keeps what the filters say, by activity: of this position at this moment, and no other.
        """
        layers = (_transient(self, moment), *self.layers) if moment.transient else self.layers
        for index, layer in enumerate(layers):
            tool = layer.tools.get(name)
            if tool is not None:
                known = {} if filtered is None else filtered
                # No look at the layers behind, also where it is kept back: they may hold a tool of this name with laxer
                # rules.
                why = layer.hidden_reason(name, tool, moment.have)
                # What is kept back already is asked of no filter: a reason would tell of a tool that is hidden anyway.
                answer = FilterAnswer(why) if why else self._filter(tool, moment, known)
                return Resolution(name, layers, index, tool, answer.why, answer.reason)
        return Resolution(name, layers, len(layers), None, "no layer names it")

    def names(self, moment: ResolutionContext, listed: tuple[str, ...] | None) -> Iterator[str]:
        """Yields every name that may be seen here, once, nearest first; `listed` orders the registry's own (N23)."""
        layers = (_transient(self, moment), *self.layers[:-1]) if moment.transient else self.layers[:-1]
        yielded: set[str] = set()
        for names in (*(layer.tools for layer in layers), self.layers[-1].tools if listed is None else listed):
            for name in names:
                if name not in yielded:
                    yielded.add(name)
                    yield name

    def _filter(self, tool: Tool, moment: ResolutionContext, known: dict[str, FilterAnswer]) -> FilterAnswer:
        if tool.of_framework or not self.filters:
            return FilterAnswer()
        found = known.get(tool.activity)
        if found is None:
            found = known[tool.activity] = self._kept_by_filter(tool, moment)
        return found

    def _kept_by_filter(self, tool: Tool, moment: ResolutionContext) -> FilterAnswer:
        for each in self.filters:
            problem = each.filter.problem(actor=moment.actor, tool=tool.facts, ctx=moment.ctx)
            if problem:
                ending = f": {each.reason}" if each.reason else ""
                return FilterAnswer(f"`tool_filter` of {each.where} {problem}{ending}", each.reason)
        return FilterAnswer()


@dataclass(frozen=True)
class Resolution:
    """The resolution of one name."""

    name: str
    """The name."""
    layers: tuple[Layer, ...] = field(repr=False)
    """The layers that were looked through, nearest first."""
    at: int
    """The index of the layer that owns the name; their number where none does."""
    tool: Tool | None
    """The tool; None where no layer names it."""
    why: str = ""
    """Why it is not seen; empty when it is."""
    reason: str = ""
    """The words of the `tool_filter` that alone keeps it back, where its author gave any."""

    @property
    def visible_tool(self) -> Tool | None:
        """Returns the tool, if it may be seen as far as layers go."""
        return None if self.why else self.tool

    @cached_property
    def trace(self) -> tuple[LayerTrace, ...]:
        """Returns every layer's part, nearest first."""
        return tuple(self._trace(index, layer) for index, layer in enumerate(self.layers))

    def _trace(self, index: int, layer: Layer) -> LayerTrace:
        if index == self.at:
            outcome: LayerOutcome = "absent" if self.why else "won"
            return LayerTrace(layer.name, layer.where, outcome, self.why or "is the nearest that names it")
        if self.name not in layer.tools:
            why = "refers to it, but it is optional and not there" if self.name in layer.missing else _NOT_NAMED
            return LayerTrace(layer.name, layer.where, "absent", why)
        nearer = self.layers[self.at].where
        kept = f"; {nearer} keeps the name, which {self.why}" if self.why else ""
        return LayerTrace(layer.name, layer.where, "lost", f"{nearer} is nearer{kept}")


class RegistryTools(Mapping[str, Tool]):
    """Presents a registry as the mapping that a layer holds, without a copy of it."""

    __slots__ = ("_names", "_registry")

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        # Once, when the catalog is built: `list` is for displays and tests, and no turn asks it (P11).
        self._names = registry.list()

    def __getitem__(self, name: str) -> Tool:
        tool = self._registry.resolve(name)
        if tool is None:
            raise KeyError(name)
        return tool

    # That of Mapping raises and catches a KeyError for each name that is not there, and most are not.
    def get(self, name: str, default: Any = None) -> Any:
        """See `dict.get`."""
        return self._registry.resolve(name) or default

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return self._registry.size


class UndeclaredTools(Mapping[str, Tool]):
    """Answers to every name that nobody declared with a tool of that name; lists none.

    `declared` are the names that are taken, also in another case: who reads a card would take the two for one tool.
    """

    def __init__(self, template: Tool, declared: Iterable[str]) -> None:
        self._taken = frozenset(name.casefold() for name in declared)
        self._find = lru_cache(_NAMES_KEPT)(partial(_make_named, template))

    def __getitem__(self, name: str) -> Tool:
        if not is_tool_name(name) or name.casefold() in self._taken:
            raise KeyError(name)
        return self._find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _make_named(template: Tool, name: str) -> Tool:
    return dataclasses.replace(template, name=name)


def owner_of(tool: Tool) -> tuple[str, str, str]:
    """Returns the actor, route and step whose own a tool is; all empty for one of the registry."""
    actor, route, step = (*(part for part in tool.place.split(".") if part != TURN), "", "", "")[:3]
    return actor, route, step


def _transient(position: Position, moment: ResolutionContext) -> Layer:
    tools, missing = {}, []
    for name in moment.transient:
        # Not `get`: None there means that the name may not be brought forward, and must not lead to the registry's
        # tool.
        tool = position.transient[name] if name in position.transient else position.registry.resolve(name)
        if tool is None:
            missing.append(name)
        else:
            tools[name] = tool
    return Layer("transient", "the turn", tools, missing=tuple(missing))
