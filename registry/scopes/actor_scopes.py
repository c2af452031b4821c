"""The positions of one actor, the tools that are its own there, and whose policies count for them."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from signoff.contracts.errors import ConfigError
from signoff.formats.json_schema import CompiledSchema
from signoff.formats.nearest_name import quote_name
from signoff.policy.compiled_policy import CompiledPolicy
from signoff.policy.policy_stack import UnderlyingPolicy, incomparable, stack_policies
from signoff.registry.actor import Step
from signoff.registry.scopes.position import Position, ResolutionContext
from signoff.registry.tool import Tool


class ScopedTool(NamedTuple):
    """A tool that is an actor's own, or stands over others of its name."""

    tool: Tool
    """The tool."""
    over: tuple[Tool, ...] = ()
    """The tools that it shadows."""
    loosens: str = ""
    """Why it need not obey them; empty where it does."""

    @property
    def policy_tools(self) -> tuple[Tool, ...]:
        """The tools whose policies count for it as well."""
        return () if self.loosens else self.over


@dataclass(frozen=True)
class ActorScopes:
    """All positions of one actor."""

    actor: str
    """The actor's name."""
    positions: Mapping[tuple[str, str], Position]
    """The positions by route and step; ("", "") is outside of all routes."""
    placed: Mapping[str, ScopedTool] = field(default_factory=dict)
    """The tools beside those of the registry, by their activity."""
    schemas: Mapping[str, CompiledSchema] = field(default_factory=dict)
    """The schemas of collected data and of the context, by name."""
    fields: frozenset[str] = frozenset()
    """The names of the context's fields."""
    collected: frozenset[str] = frozenset()
    """The names of the data that steps collect."""
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict, repr=False)
    """The steps of each route, in order."""

    @property
    def routed(self) -> bool:
        """Whether the actor has routes."""
        return bool(self.steps)

    @property
    def layered(self) -> bool:
        """Whether there is anything but the actor's list and the registry."""
        return self.routed or bool(self.placed)

    def position(self, route: str, step: str) -> Position | None:
        """Returns the position of this name; for an actor without routes always the one it has."""
        return self.positions.get((route, step) if self.routed else ("", ""))

    @cached_property
    def policy_tools(self) -> Mapping[str, tuple[Tool, ...]]:
        """The tools whose policies count where one of `placed` is judged, by its activity."""
        return {activity: each.policy_tools for activity, each in self.placed.items() if each.policy_tools}

    def check(self, route: str, step: str, transient: tuple[str, ...]) -> None:
        """Raises `ConfigError` for a position or a tool of the turn's own that this actor does not have."""
        position = self.position(route, step)
        if position is None:
            known = ", ".join(f"`{each}/{inner}`" if inner else f"`{each}`" for each, inner in self.positions if each)
            message = f"actor `{self.actor}` has no route and step {quote_name(f'{route}/{step}')}; known: {known}"
            raise ConfigError(message, actor=self.actor, field="route", value=route)
        for name in transient:
            # The turn's own layer is the nearest: a name that it does not own is unknown, or shadows what it may not.
            if position.resolve(name, ResolutionContext(transient=(name,))).at != 0:
                message = (
                    f"actor `{self.actor}` can have no tool {quote_name(name)} for one turn: none, or it may not shadow"
                )
                raise ConfigError(message, actor=self.actor, field="transient", value=name)

    def available_fields(self, extra: Mapping[str, Any]) -> frozenset[str]:
        """Returns the data fields that are there: not null, and valid where a step collects them with a schema."""
        data = extra.get("data")
        given = {
            # Declared fields of the context go before: what was collected under such a name cannot stand in for one.
            **(data if isinstance(data, Mapping) else {}),
            **{name: extra[name] for name in self.fields & {*extra}},
        }
        return frozenset(name for name, value in given.items() if value is not None and self._valid(name, value))

    def advance(self, route: str, step: str, have: AbstractSet[str]) -> str:
        """Returns the step to which a conversation at `step` moves by the data fields `have`; `step` where it stays.

        It leaves a step once all that the step collects is there, and a route's beginning for a first step that
        collects. It enters no step before all that the step requires is there.
        """
        steps = self.steps.get(route, ())
        at = -1 if not step else next((index for index, each in enumerate(steps) if each.name == step), len(steps))
        while at + 1 < len(steps):
            collected = bool(steps[0].collect) if at < 0 else bool(steps[at].collect) and have >= {*steps[at].collect}
            if not (collected and have >= {*steps[at + 1].requires}):
                break
            at += 1
        return steps[at].name if 0 <= at < len(steps) else step

    def find_step(self, route: str, name: str) -> Step | None:
        """Returns the step of this name on a route."""
        return next((each for each in self.steps.get(route, ()) if each.name == name), None)

    def _valid(self, name: str, value: Any) -> bool:
        schema = self.schemas.get(name)
        return schema is None or not schema.check(value)


def policy_over(placed: ScopedTool, own: Mapping[str, CompiledPolicy], approvers: Sequence[str]) -> CompiledPolicy:
    """Stacks the policy of a tool over those of all that it shadows, unless it says why not. `own` is by activity.

    Raises `ConfigError` where nobody can say which of them is the stricter.
    """
    tool, nearest = placed.tool, own[placed.tool.activity]
    # `own` and not what is stacked already: `over` names every tool behind this one, so each counts exactly once.
    below = [UnderlyingPolicy(own[each.activity], _fits(each)) for each in placed.policy_tools]
    why = incomparable(nearest, [each.policy for each in below], approvers)
    if why:
        raise ConfigError(
            f"actor `{tool.place.partition('.')[0]}` has a tool `{tool.name}` at `{tool.place}` that shadows another, "
            f"but {why}; or say in `loosens` why it need not be obeyed",
            actor=tool.place.partition(".")[0],
            field="requires_approval",
            value=tool.name,
        )
    return stack_policies(nearest, below, approvers)


def _fits(tool: Tool) -> Callable[[Mapping[str, Any]], bool]:
    # Rules are type-checked against their own tool's schema: of arguments that do not fit it they say nothing sure.
    return lambda args: not tool.schema.check(args)
