"""Gates 4 to 8: which tools exist for an actor, one answer for the list a model is shown and for its calls (N02)."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signoff.policy.compiled import CompiledPolicy, CompiledRules, PolicyVerdict, RulesVerdict
from signoff.registry.actor import Actor
from signoff.registry.filters import excluded, permitted
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool

_VERDICTS_KEPT: Final = 100
_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Sight:
    """What one actor can see of a registry, under global rules and one pinned context.

    `actor` is None when this worker does not know the actor (any more): then nothing is visible.
    `rulings` are those known already: shared by all turns of an actor where no rule reads the context.
    `unlisted` are the tools that an actor may see without listing them. `unavailable` are names, found out elsewhere.
    """

    registry: ToolRegistry
    rules: CompiledRules
    actor: Actor | None
    actor_name: str
    ctx: Mapping[str, Any]
    rulings: dict[str, RulesVerdict] = field(default_factory=dict, repr=False, compare=False)
    unlisted: tuple[Tool, ...] = field(default=(), repr=False, compare=False)
    unavailable: frozenset[str] = _NONE
    verdicts: dict[tuple[str, str], PolicyVerdict] = field(default_factory=dict, repr=False, compare=False)

    def without(self, unavailable: frozenset[str]) -> "Sight":
        """The same sight where the tools of these names are not available now."""
        return dataclasses.replace(self, unavailable=unavailable) if unavailable != self.unavailable else self

    def ruling(self, tool: Tool) -> RulesVerdict:
        """What the global rules say of this tool for this actor in this context; evaluated once."""
        found = self.rulings.get(tool.name)
        if found is None:
            actor = {"name": self.actor_name, "tags": list(self.actor.tags) if self.actor is not None else []}
            found = self.rules.judge(actor=actor, tool=tool.facts, ctx=dict(self.ctx))
            self.rulings[tool.name] = found
        return found

    def verdict(self, policy: CompiledPolicy, args: Mapping[str, Any]) -> PolicyVerdict:
        """What the policy says of a call with valid `args` in this context; evaluated once for the same arguments.

        A call is judged where it is proposed and again where it runs, often by the same process.
        """
        key = (policy.tool.name, hashlib.sha256(json.dumps(args).encode()).hexdigest())
        found = self.verdicts.get(key)
        if found is None:
            if len(self.verdicts) >= _VERDICTS_KEPT:
                self.verdicts.clear()
            found = self.verdicts[key] = policy.judge(args, dict(self.ctx))
        return found

    def excludes(self, tool: Tool) -> bool:
        """Gate 4: whether the tool does not exist on the surface by which the turn came."""
        return self.actor is not None and excluded(self.actor, tool, str(self.ctx.get("channel", "")))

    def hides(self, tool: Tool) -> bool:
        """Gate 5: whether a global rule hides this tool: it must read as if it did not exist."""
        return self.ruling(tool).effect == "hide"

    def permits(self, tool: Tool) -> bool:
        """Gate 6: whether the actor's own list and filters let the tool through; no list means every tool."""
        return self.actor is not None and permitted(self.actor, tool)

    def offers(self, tool: Tool) -> bool:
        """Whether the actor could see the tool if it was available."""
        return not self.excludes(tool) and self.permits(tool) and not self.hides(tool)

    def is_available(self, tool: Tool) -> bool:
        """Gate 8: whether the tool is not known to be away."""
        return tool.name not in self.unavailable

    def visible(self) -> tuple[Tool, ...]:
        """The tools the model is told of, in the actor's order, unlisted ones last (no list: sorted by name)."""
        if self.actor is None:
            return ()
        listed = self.actor.tools
        found = (self.registry.resolve(name) for name in (self.registry.list() if listed is None else listed))
        more = () if listed is None else (tool for tool in self.unlisted if tool.name not in listed)
        tools = (*(tool for tool in found if tool is not None), *more)
        return tuple(tool for tool in tools if self.is_available(tool) and self.offers(tool))
