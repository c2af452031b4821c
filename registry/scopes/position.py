"""Resolves a name at an actor's position: transient > step inline > step reference > route > agent > registry >
undeclared. The nearest layer that names a tool owns the name. While it hides the tool, no other layer provides one,
so that hiding never loosens anything.
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
"""The last part of the place of a tool that a turn's own layer puts over a nearer one."""
_NAMES_KEPT: Final = 200
"""The number of cached undeclared tools: agents can invent any number of names."""
_NOT_NAMED: Final = "does not name it"


@dataclass(frozen=True)
class LayerTrace:
    """One layer's part in a resolution."""

    layer: LayerName
    where: str
    outcome: LayerOutcome
    """Whether its tool won, lost to a nearer one, or does not exist."""
    why: str


@dataclass(frozen=True)
class Layer:
    """The tools that one layer names."""

    name: LayerName
    where: str
    tools: Mapping[str, Tool] = field(default_factory=dict, repr=False)
    """In declared order."""
    closed: str = ""
    """Why all of them are hidden here, or ""."""
    waits: tuple[str, ...] = ()
    """The data fields that the tools require."""
    later: Mapping[str, str] = field(default_factory=dict)
    """The first step at which a name is visible, by name."""
    missing: tuple[str, ...] = ()
    """Optional references without a tool."""

    def hidden_reason(self, name: str, tool: Tool, have: frozenset[str]) -> str:
        """Return why its tool is hidden, or "". The framework's own tools are always visible."""
        if self.closed and not tool.of_framework:
            return self.closed
        lacking = [each for each in self.waits if each not in have]
        if lacking:
            return f"waits for {', '.join(f'`{each}`' for each in lacking)}"
        return f"is seen from step `{self.later[name]}` on" if name in self.later else ""


class FilterAnswer(NamedTuple):
    """The answer of a position's filters about one tool."""

    why: str = ""
    """Why the tool is hidden, for the trace, or ""."""
    reason: str = ""
    """The reason of the refusing filter's author, which a model may read."""


@dataclass(frozen=True)
class ToolFilter:
    """The `tool_filter` of a step or route."""

    where: str
    filter: CompiledFilter
    reason: str = ""


@dataclass(frozen=True)
class ResolutionContext:
    """The facts of a turn that a resolution needs in addition to the position."""

    have: frozenset[str] = frozenset()
    transient: tuple[str, ...] = ()
    """The names in the turn's own layer."""
    actor: Mapping[str, Any] = field(default_factory=dict)
    """The actor as filters see it."""
    ctx: Mapping[str, Any] = field(default_factory=dict)
    """The context as filters see it."""


NO_RESOLUTION_CONTEXT: Final = ResolutionContext()


@dataclass(frozen=True)
class Position:
    """One position of an actor: a route, a step and the layers of tools there."""

    actor: str
    route: str
    """Empty outside all routes."""
    step: str
    """Empty before the first step."""
    registry: ToolResolver = field(repr=False)
    layers: tuple[Layer, ...] = ()
    """Nearest first, without the transient layer."""
    filters: tuple[ToolFilter, ...] = ()
    selects: tuple[Select, ...] = field(default=(), repr=False, compare=False)
    """Hooks that select further. Asynchronous callers run them."""
    route_select: Select | None = field(default=None, repr=False, compare=False)
    """Decides whether its route is available."""
    transient: Mapping[str, Tool | None] = field(default_factory=dict)
    """Tools in a turn's own layer that differ from the registry's. `None` if the name must not shadow."""

    @property
    def is_selected(self) -> bool:
        """Whether hooks select the visible tools here."""
        return bool(self.selects) or self.route_select is not None

    def resolve(
        self, name: str, moment: ResolutionContext, filtered: dict[str, FilterAnswer] | None = None
    ) -> "Resolution":
        """Resolve `name`. `filtered` caches the filters' answers by activity, for this position and moment only."""
        layers = (_transient(self, moment), *self.layers) if moment.transient else self.layers
        for index, layer in enumerate(layers):
            tool = layer.tools.get(name)
            if tool is not None:
                known = {} if filtered is None else filtered
                # Do not search the layers behind, even if the tool is hidden: they may hold a tool of this name with
                # laxer rules.
                why = layer.hidden_reason(name, tool, moment.have)
                # Do not run filters for a hidden tool: their reason would reveal it.
                answer = FilterAnswer(why) if why else self._filter(tool, moment, known)
                return Resolution(name, layers, index, tool, answer.why, answer.reason)
        return Resolution(name, layers, len(layers), None, "no layer names it")

    def names(self, moment: ResolutionContext, listed: tuple[str, ...] | None) -> Iterator[str]:
        """Yield each name that may be visible here, nearest first. `listed` orders the registry's names."""
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
    layers: tuple[Layer, ...] = field(repr=False)
    """The searched layers, nearest first."""
    at: int
    """The index of the layer that owns the name. The number of layers if none does."""
    tool: Tool | None
    """`None` if no layer names a tool."""
    why: str = ""
    """Why it is hidden, or ""."""
    reason: str = ""
    """The reason of the `tool_filter` that alone hides it, if its author gave one."""

    @property
    def visible_tool(self) -> Tool | None:
        return None if self.why else self.tool

    @cached_property
    def trace(self) -> tuple[LayerTrace, ...]:
        """Nearest layer first."""
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
    """Presents a registry as a layer's mapping without a copy."""

    __slots__ = ("_names", "_registry")

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry
        # Once, at build: `list` is for displays and tests, and no turn calls it.
        self._names = registry.list()

    def __getitem__(self, name: str) -> Tool:
        tool = self._registry.resolve(name)
        if tool is None:
            raise KeyError(name)
        return tool

    # Mapping's own `get` raises and catches a KeyError for each missing name, and most are missing.
    def get(self, name: str, default: Any = None) -> Any:
        return self._registry.resolve(name) or default

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return self._registry.size


class UndeclaredTools(Mapping[str, Tool]):
    """Returns a tool for every undeclared name.

    Lists none. `declared` names count in any case: readers of a card would confuse two names that differ by case only.
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
    """Return the actor, route and step that own a tool. All empty for a tool of the registry."""
    actor, route, step = (*(part for part in tool.place.split(".") if part != TURN), "", "", "")[:3]
    return actor, route, step


def _transient(position: Position, moment: ResolutionContext) -> Layer:
    tools, missing = {}, []
    for name in moment.transient:
        # Not `get`: `None` there means that the name must not be brought forward, and must not lead to the registry's
        # tool.
        tool = position.transient[name] if name in position.transient else position.registry.resolve(name)
        if tool is None:
            missing.append(name)
        else:
            tools[name] = tool
    return Layer("transient", "the turn", tools, missing=tuple(missing))
