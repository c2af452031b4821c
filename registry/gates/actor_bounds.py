"""Compiles an actor's autonomy to rules and its escalation to terms. Both only tighten."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import COLLECT, READ_REST
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import ANY_ARGUMENTS, CompiledPolicy
from signoff.policy.context_shapes import ACTOR, TOOL, context_shape, judged_shape
from signoff.policy.expression import Compiler
from signoff.policy.terms import VerdictTerms, terms_of
from signoff.registry.actor import Actor
from signoff.registry.cel_context import ContextFields

_ARGS: Final = re.compile(r"\bargs\b")
_NOT: Final = "tool.name != '{}' && "


def autonomy_rules(actors: Iterable[Actor], fields: ContextFields) -> tuple[GlobalRule, ...]:
    """Return the rules of the actors' `autonomy`.

    Two engines compile them, like the manifest's own. Raises `ConfigError` with `actor`, `field` and `value`.
    """
    return tuple(rule for actor in actors for rule in _rules(actor, fields))


def reads_arguments(rule: GlobalRule) -> bool:
    """Return whether a rule of `autonomy_rules` may read the arguments of a call, and needs them."""
    # A text that contains the word counts too: such a rule means the same with arguments.
    return _ARGS.search(rule.rule) is not None


def check_escalation(actor: Actor) -> None:
    """Raise `ConfigError` for an `escalation` that could never happen, as for a policy's."""
    path = actor.escalation
    if path is None:
        return
    if not (path.approvers or path.escalate_to):
        why = f"actor `{actor.name}`: `escalation` names nobody; write its `approvers`, or leave it out"
        raise ConfigError(why, actor=actor.name, field="escalation", value="")
    try:
        ApprovalPolicy.model_validate(
            {
                "approvers": list(path.approvers),
                "escalate_after": path.escalate_after,
                "escalate_to": list(path.escalate_to),
            }
        )
    except ConfigError as error:
        field = f"escalation.{error.context.get('field', '')}"
        message = f"actor `{actor.name}`: `escalation`: {error.message}"
        raise ConfigError(message, actor=actor.name, field=field, value=error.context.get("value")) from None


def direct_terms(actor: Actor | None, policy: CompiledPolicy, terms: VerdictTerms) -> VerdictTerms:
    """Direct `terms` to the approvers of the actor's `escalation`.

    A policy with its own approvers keeps them and its own escalation: an actor widens neither.
    """
    path, rules = None if actor is None else actor.escalation, policy.rules
    if path is None or not terms.approvers or rules.named_approvers or rules.route_to is not None:
        return terms
    update: dict[str, Any] = {"approvers": path.approvers}
    if not rules.escalate_to:
        update |= {"escalate_after": path.escalate_after, "escalate_to": path.escalate_to}
    return terms_of(replace(rules, **update), path.approvers or terms.asked_first, terms.applied)


def actor_bounds(actor: Actor) -> dict[str, Any]:
    """Return the set values of an actor's autonomy and escalation by the paths of their keys in its file."""
    listed = (("autonomy", actor.autonomy), ("escalation", actor.escalation))
    given = {f"{name}.{key}": value for name, each in listed if each is not None for key, value in vars(each).items()}
    return {key: value for key, value in given.items() if value not in ("", (), None)}


def _rules(actor: Actor, fields: ContextFields) -> Iterator[GlobalRule]:
    bounds = actor.autonomy
    if bounds is None:
        return
    if not (bounds.unasked_if or bounds.deny_if):
        why = f"actor `{actor.name}`: `autonomy` bounds nothing; write `unasked_if` or `deny_if`, or leave it out"
        raise ConfigError(why, actor=actor.name, field="autonomy", value="")
    # Only the framework's own tools that this actor has, so that other actors' rules stay unchanged.
    collects = any(step.collect for route in actor.routes for step in route.steps)
    own = [name for name, has in ((READ_REST, actor.read_rest), (COLLECT, collects)) if has]
    mine = f"actor.name == '{actor.name}' && {''.join(map(_NOT.format, own))}"
    if bounds.deny_if:
        rule = f"{mine}({_read_bound(actor, 'deny_if', bounds.deny_if, fields)})"
        yield _rule(actor, "deny_if", rule, "deny", f"`{actor.name}` may not do this")
    if bounds.unasked_if:
        rule = f"{mine}!({_read_bound(actor, 'unasked_if', bounds.unasked_if, fields)})"
        yield _rule(actor, "unasked_if", rule, "require_approval", f"`{actor.name}` may not do this unasked")


def _rule(actor: Actor, field: str, rule: str, effect: Literal["deny", "require_approval"], reason: str) -> GlobalRule:
    return GlobalRule(name=f"{actor.name}.autonomy.{field}", rule=rule, effect=effect, reason=reason)


def _read_bound(actor: Actor, field: str, source: str, fields: ContextFields) -> str:
    """Return the text of one bound that compiles alone. Without this check, its text could close our brackets."""
    ctx = judged_shape(context_shape(fields.declared))
    try:
        shapes = {"tool": TOOL, "actor": ACTOR, "ctx": ctx, "args": ANY_ARGUMENTS}
        compiler = Compiler(shapes, f"actor `{actor.name}`")
        text = compiler.compile(f"autonomy.{field}", source).text
    except ConfigError as error:
        raise ConfigError(error.message, actor=actor.name, field=f"autonomy.{field}", value=source) from None
    # A comment at its end would swallow our bracket.
    return f"{text}\n" if "//" in text else text
