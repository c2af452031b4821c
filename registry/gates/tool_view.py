"""Decides which tools exist for an actor. The model's list and its calls share one answer."""

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
    """The tools of a registry that one actor can see, under global rules and in one pinned context.

    Without `actor`, nothing is visible. `rule_verdicts` is a cache, shared by all turns of an actor if no rule reads
    the context. `unlisted` are tools that an actor may see without listing them. `unavailable` are names, determined
    elsewhere. `over` maps the activity of an own tool to the tools that it shadows and still obeys. `filtered` caches
    the filters' answers by activity. `passing` under "" caches the tools that pass all gates except availability. `now`
    is the instant of the judgement. `bounds` are the rules of actors' autonomy over arguments.
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
        return self.actor.facts if self.actor is not None else actor_facts(self.actor_name)

    def resolution(self, name: str) -> Resolution:
        if self.position is None:
            # A deploy can remove the step at which a turn waits: then nothing is visible, rather than everything.
            return Resolution(name, (), 0, self.registry.resolve(name), "the actor's position is unknown")
        return self.position.resolve(name, self.moment, self.filtered)

    def tool(self, name: str) -> Tool | None:
        """Visible or not."""
        return self.resolution(name).tool

    def sees(self, tool: Tool) -> bool:
        """Return whether the name resolves to this tool here, and the tool is visible (gate 7)."""
        found = self.resolution(tool.name).visible_tool
        return found is not None and found.activity == tool.activity

    def at(self, now: Mapping[str, Any] | None) -> "ToolView":
        """Return the view for a call judged at this instant, a `now_record`. `None` if the instant is unknown."""
        # Verdicts for this instant hold for no other. The list of tools is independent of the instant.
        rule_verdicts: dict[str, RulesVerdict] = {} if self.rules.reads_now else self.rule_verdicts
        return dataclasses.replace(self, now=now, rule_verdicts=rule_verdicts)

    @property
    def judged_ctx(self) -> dict[str, Any]:
        """The context as rules see it, with the instant of the judgement if it is known."""
        return {**self.ctx, **({} if self.now is None else {"now": dict(self.now)})}

    def without(self, unavailable: frozenset[str]) -> "ToolView":
        return dataclasses.replace(self, unavailable=unavailable) if unavailable != self.unavailable else self

    def rules_verdict(self, tool: Tool) -> RulesVerdict:
        """Return the verdict of the global rules, also those about tools that it shadows. Evaluated once."""
        found = self._judge_rules(tool)
        for each in self.over.get(tool.activity, ()):
            # Otherwise a tool of the same name could escape a rule about the tags or scope of the shadowed one.
            found = min(found, self._judge_rules(each), key=lambda one: _STRICTEST.index(one.effect))
        return found

    def _judge_rules(self, tool: Tool) -> RulesVerdict:
        found = self.rule_verdicts.get(tool.activity)
        if found is None:
            found = self.rules.judge(actor=self.actor_facts, tool=tool.facts, ctx=self.judged_ctx)
            self.rule_verdicts[tool.activity] = found
        return found

    def verdict(self, policy: CompiledPolicy, args: Mapping[str, Any]) -> PolicyVerdict:
        """Return the policy's verdict on a call with valid `args`.

        Evaluated once for equal arguments: one process often judges a call at the proposal and before the run.
        """
        # The policy too: an actor's own tool may have the name of another.
        key = (policy.tool.name, policy.hash, self._occasion(policy.reads_now, args))
        found = self.verdicts.get(key)
        if found is None:
            if len(self.verdicts) >= _VERDICTS_KEPT:
                self.verdicts.clear()
            judged = policy.judge(args, self.judged_ctx, self.actor_facts)
            # Direct terms only here, so that a repeated judgement reaches the same approvers.
            directed = direct_terms(self.actor, policy, judged.terms)
            found = self.verdicts[key] = dataclasses.replace(judged, terms=directed)
        return found

    def bounds_verdict(self, tool: Tool, policy: CompiledPolicy, args: Mapping[str, Any]) -> RulesVerdict:
        """Return the verdict of the actor's bounds on a call with valid `args`. Evaluated once for equal arguments."""
        if self.bounds is None or not self.bounds.rules:
            return _UNBOUND
        key = (tool.activity, self._occasion(self.bounds.reads_now, args))
        found = self.bound_verdicts.get(key)
        if found is None:
            if len(self.bound_verdicts) >= _VERDICTS_KEPT:
                self.bound_verdicts.clear()
            call = CallArguments(args, policy.args_shape)
            # A bound on a shadowed tool applies to the shadowing tool too, as all rules do.
            tools = (tool, *self.over.get(tool.activity, ()))
            judged = (
                self.bounds.judge(actor=self.actor_facts, tool=each.facts, ctx=self.judged_ctx, call=call)
                for each in tools
            )
            found = self.bound_verdicts[key] = min(judged, key=lambda one: _STRICTEST.index(one.effect))
        return found

    def _occasion(self, reads_now: bool, args: Mapping[str, Any]) -> str:
        # Arguments may have 64 KiB. A different order only costs a second evaluation.
        digest = hashlib.sha256(json.dumps(args).encode()).hexdigest()
        return f"{self.now} {digest}" if reads_now else digest

    def excludes(self, tool: Tool) -> bool:
        return self.actor is not None and is_excluded(self.actor, tool, self.ctx["channel"])

    def hides(self, tool: Tool) -> bool:
        """For the gate `tag_policy`: a hidden tool must look as if it did not exist."""
        return self.rules_verdict(tool).effect == "hide"

    def permits(self, tool: Tool) -> bool:
        """Return whether the actor's list and filters pass the tool (gate `allowlist`).

        No list means every tool. The tool must also exist for the tenant, as must the tools that it shadows. In a turn
        of another agent, it must be exposed to peers.
        """
        tools = (tool, *self.over.get(tool.activity, ()))
        tenant = self.ctx.get("tenant")
        here = all(each.tenants is None or tenant in each.tenants for each in tools)
        # Not a surface exclusion: its message would reveal the tool to a peer.
        here = here and (self.ctx.get("channel") != PEER or tool.for_peers or tool.of_framework)
        return here and self.actor is not None and is_permitted(self.actor, tool)

    def offers(self, tool: Tool) -> bool:
        """Return whether the actor could see the tool if it were available."""
        return self.sees(tool) and self._passes(tool)

    def _passes(self, tool: Tool) -> bool:
        return self.permits(tool) and not self.excludes(tool) and not self.hides(tool)

    def is_available(self, tool: Tool) -> bool:
        """Return whether the tool is not known to be unavailable (gate `available`)."""
        return tool.name not in self.unavailable

    def visible(self) -> tuple[Tool, ...]:
        """Return the tools for the model: nearest layers first, then in the actor's order, unlisted ones last.

        Computed once: every call of an unknown name needs them for suggestions.
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
