"""Defines a policy's handler: its input, answers and effect."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from signoff.contracts.call import RuleReference
from signoff.contracts.content import Words
from signoff.formats.replace import replace
from signoff.policy.approval_policy import Term
from signoff.policy.compiled_policy import CompiledPolicy, PolicyVerdict
from signoff.policy.facts import ToolFacts
from signoff.policy.terms import VerdictTerms, add_term, terms_of

_VERDICTS: Final = ("auto", "ask", "deny", "abstain")
_LEVELS: Final = ("user", "admin")
_ADMIN: Final = ("role:admin",)


@dataclass(frozen=True)
class HandlerCall:
    """The call that a handler judges."""

    tool: ToolFacts
    args: dict[str, Any]
    """A copy: changing it has no effect."""


@dataclass(frozen=True)
class HandlerVerdict:
    """The verdict of a policy's handler on one call. `auto` overrides no rule that asks.

    `auto` alone decides only if the handler is the policy's only rule.
    """

    verdict: Literal["auto", "ask", "deny", "abstain"]
    """`abstain` leaves the verdict to the rules."""
    level: Literal["user", "admin"] = "user"
    """`admin` asks the role `admin` instead of the policy's approvers."""
    reason: str = ""
    """For people and, for a denial, for the model."""
    failed: bool = False
    """Whether the handler gave no answer, so that approvers are asked."""
    stricter: Term | None = None
    """Terms in addition to the policy's, even if another rule asks."""


PolicyHandler: TypeAlias = Callable[[HandlerCall, dict[str, Any]], object]
"""`(call, context)`, sync or async.

`context` is the `ctx` of rules.

Returns a `HandlerVerdict` or one of these words: `auto`, `deny`, `ask` or `user` (needs approval), `admin` (needs
approval by that role) and `abstain` (the rules decide, as if there were no handler).
"""

_WORDS: Final[Mapping[str, HandlerVerdict]] = {
    "auto": HandlerVerdict("auto"),
    "ask": HandlerVerdict("ask"),
    "user": HandlerVerdict("ask"),
    "admin": HandlerVerdict("ask", "admin"),
    "deny": HandlerVerdict("deny"),
    "abstain": HandlerVerdict("abstain"),
}


def read_answer(returned: object) -> HandlerVerdict | None:
    """Return `None` if the answer is not valid."""
    if isinstance(returned, str):
        return _WORDS.get(returned)
    if not isinstance(returned, HandlerVerdict) or not isinstance(returned.reason, str):
        return None
    # Only the engine may set `failed`: it makes the question another one, under its own rule.
    right = returned.verdict in _VERDICTS and returned.level in _LEVELS and returned.failed is False
    right = right and (returned.stricter is None or isinstance(returned.stricter, Term))
    return returned if right else None


def handler_rule(policy: CompiledPolicy) -> RuleReference | None:
    """Return `None` without a handler."""
    reference = policy.policy.handler if policy.policy is not None else None
    return RuleReference(kind="handler", handler=reference) if reference else None


def apply_handler_verdict(policy: CompiledPolicy, verdict: PolicyVerdict, answer: HandlerVerdict) -> PolicyVerdict:
    """The handler decides if it is the policy's only rule. Otherwise it can only tighten."""
    rule = handler_rule(policy)
    # A handler can only tighten, and nothing is tighter than a denial.
    if rule is None or verdict.verdict == "deny":
        return verdict
    # Record that the handler was called, even if its answer changes nothing.
    terms = _asked_on(policy, verdict.terms, answer)
    verdict = dataclasses.replace(verdict, evaluators=f"{verdict.evaluators}, {rule.label}", terms=terms)
    why = answer.reason or f"`handler` says {answer.verdict}"
    if answer.verdict == "abstain":
        return verdict
    if answer.verdict == "deny":
        return dataclasses.replace(verdict, verdict="deny", rule=rule, rule_text=_words(answer), reasons=(why,))
    if answer.verdict == "auto":
        if verdict.verdict == "ask" and not policy.handler_alone:
            return verdict
        reasons: tuple[Words, ...] = (why,) if policy.handler_alone else (*verdict.reasons, why)
        # Keep its approvers: a global rule or a later gate may still ask them.
        return dataclasses.replace(verdict, verdict="auto", rule=rule, rule_text=_words(answer), reasons=reasons)
    return _ask(verdict, answer, rule, why)


def _ask(verdict: PolicyVerdict, answer: HandlerVerdict, rule: RuleReference, why: str) -> PolicyVerdict:
    reasons: tuple[Words, ...] = (why,)
    if verdict.verdict == "ask" and verdict.rule_text:
        rule, reasons = replace(verdict.rule, handler=rule.handler), (*verdict.reasons, why)
    # Another reason to ask makes another question, to which a grant for the first does not apply.
    rule = replace(rule, answer="failed" if answer.failed else "admin" if answer.level == "admin" else "")
    words, level = _words(answer), answer.level
    return dataclasses.replace(verdict, verdict="ask", rule=rule, rule_text=words, reasons=reasons, level=level)


def _asked_on(policy: CompiledPolicy, terms: VerdictTerms, answer: HandlerVerdict) -> VerdictTerms:
    rules = policy.rules
    if answer.verdict == "ask" and answer.level == "admin":
        terms = terms_of(rules, _ADMIN, terms.applied)
    return terms if answer.stricter is None else add_term(terms, rules, answer.stricter.as_applied(answer.reason))


def _words(answer: HandlerVerdict) -> str:
    who = " admin" if answer.level == "admin" and answer.verdict == "ask" else ""
    return f"{answer.verdict}{who}: {answer.reason}" if answer.reason else f"{answer.verdict}{who}"
