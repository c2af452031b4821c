"""Lists each tool's actors, and whether its calls run, need approval, are denied or hidden."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.compiled_policy import CompiledPolicy, Effect
from signoff.policy.expression import Expression, facts
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.registry.scopes.position import owner_of
from signoff.registry.tool import Tool

Reach = Literal["never", "maybe", "always"]

_NEEDS: Final = {"never": "auto", "maybe": "maybe asks", "always": "asks"}
_HANDLER: Final = "handler decides"
_ABOUT_CTX: Final = re.compile(r"\bctx\b(?!\s*\.)|\bhas\s*\(")
"""Expressions whose result without a context does not predict the result with one."""


@dataclass(frozen=True)
class InventoryRow:
    """One tool for people to read."""

    tool: str
    """The activity: the name, except for an actor's own tools."""
    title: str
    scope: str
    routing: str
    needs: str
    """`auto`, `asks`, `maybe asks`, `handler decides`, `denied` or `hidden`.

    It has the suffix `, may be denied` or `, may be hidden` if a rule can do that.
    """
    rules: tuple[str, ...]
    """The policy's expressions and handler as `field: expression`, then the global rules that reach the tool."""
    approvers: tuple[str, ...]
    actors: tuple[str, ...]
    """The actors that may use it, apart from hide rules."""
    tags: tuple[str, ...]
    bypass_reason: str = ""
    """Empty if calls are routed."""
    justification: str = ""
    """Empty if several actors may have the tool."""


def inventory(catalog: Catalog, tenant: str | None = None) -> tuple[InventoryRow, ...]:
    """Return one row per tool, sorted by name, then the actors' own tools, by activity.

    With a `tenant`, only the tools that exist for it: a tenant must not learn about others.
    """
    tools = catalog.every_tool
    return tuple(_row(catalog, tool) for tool in tools if tenant is None or exists_for(catalog, tool, tenant))


def exists_for(catalog: Catalog, tool: Tool, tenant: str) -> bool:
    """Return whether the tool exists for a tenant, by its declaration and those of the tools it shadows."""
    scopes = catalog.scopes.get(owner_of(tool)[0])
    obeyed = () if scopes is None else scopes.policy_tools.get(tool.activity, ())
    return all(each.tenants is None or tenant in each.tenants for each in (tool, *obeyed))


def _row(catalog: Catalog, tool: Tool) -> InventoryRow:
    compiled = catalog.policy(tool.activity)
    users = [actor for actor in catalog.actors.values() if _may_use(actor, tool)]
    reached = [(rule, _reach(expression, tool, users)) for rule, expression in catalog.rules.rules]
    # A bound that reads arguments may reach every tool of its actor.
    bounds = () if catalog.bounds is None else catalog.bounds.rules
    reached += [(rule, "maybe") for rule, _ in bounds if any(rule.name.startswith(f"{each.name}.") for each in users)]
    person = _strictest(compiled.needs_person, *(r for rule, r in reached if rule.effect == "require_approval"))
    return InventoryRow(
        tool=tool.activity,
        title=tool.title,
        scope=tool.scope,
        routing=tool.routing,
        needs=_needs(person, compiled, [(rule.effect, reach) for rule, reach in reached]),
        rules=(
            *_expressions(compiled.policy),
            *(f"{rule.effect} by `{rule.name}`: {rule.rule}" for rule, reach in reached if reach != "never"),
        ),
        approvers=() if person == "never" else catalog.approvers(tool.activity),
        actors=tuple(actor.name for actor in users),
        tags=tool.tags,
        bypass_reason="" if tool.bypass_routing is None else tool.bypass_routing.reason,
        justification=tool.justification,
    )


def _may_use(actor: Actor, tool: Tool) -> bool:
    listed = actor.tools is None or tool.name in actor.tools or tool.undeclared
    if tool.is_external and actor.external is None:
        return False
    return listed and (not tool.place or tool.place.partition(".")[0] == actor.name)


def _needs(person: Reach, compiled: CompiledPolicy, rules: Iterable[tuple[Effect, Reach]]) -> str:
    found, policy = set(rules), compiled.policy
    # Hide is stronger, as at the gates: a hidden tool must not be listed as denied.
    for effect, word in (("hide", "hidden"), ("deny", "denied")):
        if (effect, "always") in found:
            return word
    may_deny = ("deny", "maybe") in found or (policy is not None and (policy.deny_if or policy.handler) is not None)
    flags = (("may be denied", may_deny), ("may be hidden", ("hide", "maybe") in found))
    alone = compiled.handler_alone and person == "maybe"
    return ", ".join((_HANDLER if alone else _NEEDS[person], *(word for word, applies in flags if applies)))


def _reach(expression: Expression, tool: Tool, users: Iterable[Actor]) -> Reach:
    """Return whether a global rule reaches the tool in any context."""
    # Rules also read the actor: it may hide a tool from one actor only.
    found = {_reach_of(expression, tool, actor) for actor in users} or {"never"}
    return found.pop() if len(found) == 1 else "maybe"


def _reach_of(expression: Expression, tool: Tool, actor: Actor) -> Reach:
    if _ABOUT_CTX.search(expression.text):
        return "maybe"
    # Evaluated without a context: an expression that reads one fails, and predicts no turn.
    data = {"actor": actor.facts, "tool": tool.facts.as_cel()}
    kinds = {answer.kind for answer in expression.ask(facts(data))}
    if kinds == {"false"}:
        return "never"
    # An error applies a rule like `true` does. If the missing context cannot cause it, it always happens.
    return "always" if kinds == {"true"} or "ctx" not in expression.text else "maybe"


def _strictest(*reaches: Reach) -> Reach:
    return max(reaches, key=("never", "maybe", "always").index)


def _expressions(policy: ApprovalPolicy | None) -> tuple[str, ...]:
    if policy is None:
        return ()
    listed = (
        ("deny_if", policy.deny_if),
        ("require_approval_if", policy.require_approval_if),
        ("auto_approve_if", policy.auto_approve_if),
        ("handler", policy.handler),
    )
    rules = tuple(f"{field}: {expression}" for field, expression in listed if expression)
    return (*rules, *(f"terms: {term.reason or 'stricter'} if {term.when}" for term in policy.terms))
