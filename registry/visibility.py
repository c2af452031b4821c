"""Gates 3 to 6: which tools exist for an actor, one answer for the list a model is shown and for its calls (N02)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signoff.policy.compiled import CompiledPolicy, CompiledRules, PolicyVerdict, RulesVerdict
from signoff.registry.actor import Actor
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool

_VERDICTS_KEPT: Final = 100


@dataclass(frozen=True)
class Sight:
    """What one actor can see of a registry, under global rules and one pinned context.

    `actor` is None when this worker does not know the actor (any more): then nothing is visible.
    `rulings` are those known already: shared by all turns of an actor where no rule reads the context.
    """

    registry: ToolRegistry
    rules: CompiledRules
    actor: Actor | None
    actor_name: str
    ctx: Mapping[str, Any]
    rulings: dict[str, RulesVerdict] = field(default_factory=dict, repr=False, compare=False)
    _verdicts: dict[tuple[str, str], PolicyVerdict] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _VERDICTS_KEPT:
                self._verdicts.clear()
            found = self._verdicts[key] = policy.judge(args, dict(self.ctx))
        return found

    def allows(self, name: str) -> bool:
        """Whether the actor's own list has this name; no list means every tool."""
        return self.actor is not None and (self.actor.tools is None or name in self.actor.tools)

    def hides(self, tool: Tool) -> bool:
        """Whether a global rule hides this tool: it must read as if it did not exist."""
        return self.ruling(tool).effect == "hide"

    def visible(self) -> tuple[Tool, ...]:
        """The tools the model is told of, in the actor's order (all: sorted by name)."""
        if self.actor is None:
            return ()
        names = self.registry.list() if self.actor.tools is None else self.actor.tools
        tools = (self.registry.resolve(name) for name in names if self.allows(name))
        return tuple(tool for tool in tools if tool is not None and not self.hides(tool))
