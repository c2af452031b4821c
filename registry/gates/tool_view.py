"""Decides which tools exist for an actor, by one answer for the list a model is shown and for its calls (N02)."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signoff.contracts.names import PEER
from signoff.policy.compiled_policy import CallArguments, CompiledPolicy, CompiledRules, PolicyVerdict, RulesVerdict
from signoff.registry.actor import Actor, actor_facts
from signoff.registry.gates.actor_bounds import direct_terms
from signoff.registry.gates.actor_filters import is_excluded, is_permitted
from signoff.registry.registry import ToolResolver
from signoff.registry.scopes.position import (
    NO_RESOLUTION_CONTEXT,
    FilterAnswer,
    Position,
    Resolution,
    ResolutionContext,
)
from signoff.registry.tool import Tool

_VERDICTS_KEPT: Final = 100
_STRICTEST: Final = ("hide", "deny", "require_approval", "none")
_NONE: Final[frozenset[str]] = frozenset()
_UNBOUND: Final = RulesVerdict("none", None, "no bound reads the arguments")


@dataclass(frozen=True)
class ToolView:
    """What one actor can see of a registry, under global rules and one pinned context.

    `actor` is None when this worker does not know the actor (any more): then nothing is visible.
    `rule_verdicts` are those known already: shared by all turns of an actor where no rule reads the context.
    `unlisted` are the tools that an actor may see without listing them. `unavailable` are names, found out elsewhere.
    `position` is where the actor stands, None where that is not known, `moment` what is there then. `over` are the
    tools that one of the actor's own shadows and still obeys, by its activity. `filtered` is what the filters there
    say then, by activity, `passing` under "" the tools that pass all gates but that of what is away, once known.
    `now` is the instant at which a call is judged, see `at`. `bounds` are the rules of actors' autonomy over arguments.
    """

    registry: ToolResolver
    rules: CompiledRules
    actor: Actor | None
    actor_name: str
    ctx: Mapping[str, Any]
    rule_verdicts: dict[str, RulesVerdict] = field(default_factory=dict, repr=False, compare=False)
    unlisted: tuple[Tool, ...] = field(default=(), repr=False, compare=False)
    unavailable: frozenset[str] = _NONE
    verdicts: dict[tuple[str, str, str], PolicyVerdict] = field(default_factory=dict, repr=False, compare=False)
    position: Position | None = field(default=None, repr=False, compare=False)
    moment: ResolutionContext = field(default=NO_RESOLUTION_CONTEXT, repr=False, compare=False)
    over: Mapping[str, tuple[Tool, ...]] = field(default_factory=dict, repr=False, compare=False)
    filtered: dict[str, FilterAnswer] = field(default_factory=dict, repr=False, compare=False)
    passing: dict[str, tuple[Tool, ...]] = field(default_factory=dict, repr=False, compare=False)
    now: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    bounds: CompiledRules | None = field(default=None, repr=False, compare=False)
    bound_verdicts: dict[tuple[str, str], RulesVerdict] = field(default_factory=dict, repr=False, compare=False)

    @property
    def actor_facts(self) -> dict[str, Any]:
        """Returns the actor as rules and filters see it."""
        return self.actor.facts if self.actor is not None else actor_facts(self.actor_name)

    def resolution(self, name: str) -> Resolution:
        """Resolves a name where the actor stands, as the gates `resolve` and `layer` do: its tool, whether it is seen
        there, and the trace.
        """
        if self.position is None:
            # A deploy can take away the step at which a turn waits: nothing is seen from there, rather than everything.
            return Resolution(name, (), 0, self.registry.resolve(name), "the actor stands nowhere that is known")
        return self.position.resolve(name, self.moment, self.filtered)

    def tool(self, name: str) -> Tool | None:
        """Returns the tool that the name means, whether or not the gates let it be seen."""
        return self.resolution(name).tool

    def sees(self, tool: Tool) -> bool:
        """Returns whether the tool's name means this very tool where the actor stands, and it is not kept back (gate
        7).
        """
        found = self.resolution(tool.name).visible_tool
        return found is not None and found.activity == tool.activity

    def at(self, now: Mapping[str, Any] | None) -> "ToolView":
        """Returns the same view for a call that is judged at this instant, a `now_record`; None: nobody says when."""
        # What rules say of this instant is no other's: which tools there are is asked of no instant.
        rule_verdicts: dict[str, RulesVerdict] = {} if self.rules.reads_now else self.rule_verdicts
        return dataclasses.replace(self, now=now, rule_verdicts=rule_verdicts)

    @property
    def judged_ctx(self) -> dict[str, Any]:
        """The context as rules see it: with the instant at which the call is judged, where that is known."""
        return {**self.ctx, **({} if self.now is None else {"now": dict(self.now)})}

    def without(self, unavailable: frozenset[str]) -> "ToolView":
        """Returns the same view without the tools of these names, as they are not available now."""
        return dataclasses.replace(self, unavailable=unavailable) if unavailable != self.unavailable else self

    def rules_verdict(self, tool: Tool) -> RulesVerdict:
        """Returns the verdict of the global rules on this tool for this actor in this context; evaluated once.

        What they say of a tool that it shadows counts as well.
        """
        found = self._judge_rules(tool)
        for each in self.over.get(tool.activity, ()):
            # A rule about the shadowed tool by its tags or scope would else be escaped by a namesake (X03).
            found = min(found, self._judge_rules(each), key=lambda one: _STRICTEST.index(one.effect))
        return found

    def _judge_rules(self, tool: Tool) -> RulesVerdict:
        found = self.rule_verdicts.get(tool.activity)
        if found is None:
            found = self.rules.judge(actor=self.actor_facts, tool=tool.facts, ctx=self.judged_ctx)
            self.rule_verdicts[tool.activity] = found
        return found

    def verdict(self, policy: CompiledPolicy, args: Mapping[str, Any]) -> PolicyVerdict:
        """Returns the policy's verdict on a call with valid `args` in this context; evaluated once for the same
        arguments.

        A call is judged where it is proposed and again where it runs, often by the same process.
        """
        # The policy as well as the name: an actor's own tool may have that of another.
        key = (policy.tool.name, policy.hash, self._occasion(policy.reads_now, args))
        found = self.verdicts.get(key)
        if found is None:
            if len(self.verdicts) >= _VERDICTS_KEPT:
                self.verdicts.clear()
            judged = policy.judge(args, self.judged_ctx, self.actor_facts)
            # Here and nowhere else, so that where a call is judged again it is asked of the same people.
            directed = direct_terms(self.actor, policy, judged.terms)
            found = self.verdicts[key] = dataclasses.replace(judged, terms=directed)
        return found

    def bounds_verdict(self, tool: Tool, policy: CompiledPolicy, args: Mapping[str, Any]) -> RulesVerdict:
        """Returns the verdict of the actor's bounds on a call with valid `args`; evaluated once for the same ones."""
        if self.bounds is None or not self.bounds.rules:
            return _UNBOUND
        key = (tool.activity, self._occasion(self.bounds.reads_now, args))
        found = self.bound_verdicts.get(key)
        if found is None:
            if len(self.bound_verdicts) >= _VERDICTS_KEPT:
                self.bound_verdicts.clear()
            call = CallArguments(args, policy.args_shape)
            # What holds for a tool that it shadows holds for it, as with all rules.
            tools = (tool, *self.over.get(tool.activity, ()))
            judged = (
                self.bounds.judge(actor=self.actor_facts, tool=each.facts, ctx=self.judged_ctx, call=call)
                for each in tools
            )
            found = self.bound_verdicts[key] = min(judged, key=lambda one: _STRICTEST.index(one.effect))
        return found

    def _occasion(self, reads_now: bool, args: Mapping[str, Any]) -> str:
        # Arguments may be 64 KiB. Another order of them only costs a second evaluation.
        digest = hashlib.sha256(json.dumps(args).encode()).hexdigest()
        return f"{self.now} {digest}" if reads_now else digest

    def excludes(self, tool: Tool) -> bool:
        """Returns whether the tool does not exist on the surface by which the turn came (gate `surface`)."""
        return self.actor is not None and is_excluded(self.actor, tool, self.ctx["channel"])

    def hides(self, tool: Tool) -> bool:
        """Returns whether a global rule hides this tool: it must read as if it did not exist (gate `tag_policy`)."""
        return self.rules_verdict(tool).effect == "hide"

    def permits(self, tool: Tool) -> bool:
        """Returns whether the actor's own list and filters let the tool through (gate `allowlist`).

        No list means every tool. And whether it exists for the tenant of the turn, by its own word and that of the
        tools which it shadows (V07), and for other agents where one of them asked for the turn (B14).
        """
        tools = (tool, *self.over.get(tool.activity, ()))
        tenant = self.ctx.get("tenant")
        here = all(each.tenants is None or tenant in each.tenants for each in tools)
        # Not an exclusion of a surface: that is told, and a peer must not learn by it what tools there are.
        here = here and (self.ctx.get("channel") != PEER or tool.for_peers or tool.of_framework)
        return here and self.actor is not None and is_permitted(self.actor, tool)

    def offers(self, tool: Tool) -> bool:
        """Returns whether the actor could see the tool if it was available."""
        return self.sees(tool) and self._passes(tool)

    def _passes(self, tool: Tool) -> bool:
        return self.permits(tool) and not self.excludes(tool) and not self.hides(tool)

    def is_available(self, tool: Tool) -> bool:
        """Returns whether the tool is not known to be away (gate `available`)."""
        return tool.name not in self.unavailable

    def visible(self) -> tuple[Tool, ...]:
        """Returns the tools that the model is offered: nearest layers first, then in the actor's order, unlisted ones
        last.

        Worked out once: every call of an unknown name asks for them, to offer a near one.
        """
        found = self.passing.get("")
        if found is None:
            found = self.passing[""] = self._find_passing()
        return tuple(tool for tool in found if self.is_available(tool))

    def _find_passing(self) -> tuple[Tool, ...]:
        if self.actor is None or self.position is None:
            return ()
        names = dict.fromkeys(self.position.names(self.moment, self.actor.tools))
        names |= dict.fromkeys(tool.name for tool in self.unlisted)
        found = (self.resolution(name).visible_tool for name in names)
        return tuple(tool for tool in found if tool is not None and self._passes(tool))
