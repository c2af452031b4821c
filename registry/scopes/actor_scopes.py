"""The positions of one actor, its own tools there, and the policies that apply to them."""

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
    """An actor's own tool, or a tool that shadows others of its name."""

    tool: Tool
    over: tuple[Tool, ...] = ()
    loosens: str = ""
    """Why it need not obey the shadowed tools, or ""."""

    @property
    def policy_tools(self) -> tuple[Tool, ...]:
        """The shadowed tools whose policies also apply to it."""
        return () if self.loosens else self.over


@dataclass(frozen=True)
class ActorScopes:
    """All positions of one actor."""

    actor: str
    positions: Mapping[tuple[str, str], Position]
    """By route and step; ("", "") is outside of all routes."""
    placed: Mapping[str, ScopedTool] = field(default_factory=dict)
    """The tools outside the registry, by activity."""
    schemas: Mapping[str, CompiledSchema] = field(default_factory=dict)
    """The schemas of collected data and of the context, by name."""
    fields: frozenset[str] = frozenset()
    collected: frozenset[str] = frozenset()
    steps: Mapping[str, tuple[Step, ...]] = field(default_factory=dict, repr=False)
    """The steps of each route, in order."""

    @property
    def routed(self) -> bool:
        return bool(self.steps)

    @property
    def layered(self) -> bool:
        """Whether the actor has routes or tools outside the registry."""
        return self.routed or bool(self.placed)

    def position(self, route: str, step: str) -> Position | None:
        """An actor without routes has a single position."""
        return self.positions.get((route, step) if self.routed else ("", ""))

    @cached_property
    def policy_tools(self) -> Mapping[str, tuple[Tool, ...]]:
        """For each activity in `placed`, the tools whose policies also apply."""
        return {activity: each.policy_tools for activity, each in self.placed.items() if each.policy_tools}

    def check(self, route: str, step: str, transient: tuple[str, ...]) -> None:
        """Raise `ConfigError` for a position or a tool of the turn that this actor does not have."""
        position = self.position(route, step)
        if position is None:
            known = ", ".join(f"`{each}/{inner}`" if inner else f"`{each}`" for each, inner in self.positions if each)
            message = f"actor `{self.actor}` has no route and step {quote_name(f'{route}/{step}')}; known: {known}"
            raise ConfigError(message, actor=self.actor, field="route", value=route)
        for name in transient:
            # The turn's layer is the nearest: a name that it does not own is unknown, or must not shadow the existing
            # tool.
            if position.resolve(name, ResolutionContext(transient=(name,))).at != 0:
                message = (
                    f"actor `{self.actor}` can have no tool {quote_name(name)} for one turn: none, or it may not shadow"
                )
                raise ConfigError(message, actor=self.actor, field="transient", value=name)

    def available_fields(self, extra: Mapping[str, Any]) -> frozenset[str]:
        """Return the available data fields: not null, and valid if a step collects them with a schema."""
        data = extra.get("data")
        given = {
            # Declared context fields win: collected data of the same name cannot replace one.
            **(data if isinstance(data, Mapping) else {}),
            **{name: extra[name] for name in self.fields & {*extra}},
        }
        return frozenset(name for name, value in given.items() if value is not None and self._valid(name, value))

    def advance(self, route: str, step: str, have: AbstractSet[str]) -> str:
        """Return the next step of a conversation with the data fields `have`, or `step`.

        It leaves a step once all its data is collected, and the beginning of a route for a first step that collects. It
        enters a step only if all its required data is available.
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
        return next((each for each in self.steps.get(route, ()) if each.name == name), None)

    def _valid(self, name: str, value: Any) -> bool:
        schema = self.schemas.get(name)
        return schema is None or not schema.check(value)


def policy_over(placed: ScopedTool, own: Mapping[str, CompiledPolicy], approvers: Sequence[str]) -> CompiledPolicy:
    """Combine the policies of a tool and all shadowed tools, unless it gives a reason.

    `own` is by activity. Raises `ConfigError` if neither is clearly stricter.
    """
    tool, nearest = placed.tool, own[placed.tool.activity]
    # Use `own`, not combined policies: `over` names every tool behind this one, so each counts exactly once.
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
    # Rules are type-checked against their own tool's schema: they are unreliable for other arguments.
    return lambda args: not tool.schema.check(args)
