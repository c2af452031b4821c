"""Defines a policy's own function: its input, its answers, and how these change the rules' verdict."""

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
from signoff.policy.terms import Terms, terms_of, tighten_terms

_VERDICTS: Final = ("auto", "ask", "deny", "abstain")
_LEVELS: Final = ("user", "admin")
_ADMIN: Final = ("role:admin",)


@dataclass(frozen=True)
class HandlerCall:
    """The call that a handler judges."""

    tool: ToolFacts
    """The tool."""
    args: dict[str, Any]
    """A copy of the arguments: changing them changes nothing."""


@dataclass(frozen=True)
class HandlerVerdict:
    """The verdict of a policy's handler on one call."""

    verdict: Literal["auto", "ask", "deny", "abstain"]
    """Whether the call runs, is asked about, or is denied; `abstain` leaves that to the rules."""
    level: Literal["user", "admin"] = "user"
    """`admin` asks those with the role `admin` in place of the policy's approvers."""
    reason: str = ""
    """The reason for people and, of a denial, for the model."""
    failed: bool = False
    """Whether the handler gave no answer, so that a person is asked."""
    stricter: Term | None = None
    """Terms to add to those of the policy, also where something else asks."""


PolicyHandler: TypeAlias = Callable[[HandlerCall, dict[str, Any]], object]
"""`(call, context)`, sync or async; `context` is what rules see as `ctx`. Returns an `HandlerVerdict`, or one of the
words `auto`, `deny`, `ask` or `user` (a person is asked), `admin` (somebody with that role is) and `abstain` (the
rules decide, as if it had not been asked).
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
    """Parses what a handler returned; None when that is no answer."""
    if isinstance(returned, str):
        return _WORDS.get(returned)
    if not isinstance(returned, HandlerVerdict) or not isinstance(returned.reason, str):
        return None
    # `failed` is for the engine to say: it makes the question another one, under a rule of its own.
    right = returned.verdict in _VERDICTS and returned.level in _LEVELS and returned.failed is False
    right = right and (returned.stricter is None or isinstance(returned.stricter, Term))
    return returned if right else None


def handler_rule(policy: CompiledPolicy) -> RuleReference | None:
    """Returns the rule of verdicts that a policy's handler gives; None when it has none."""
    reference = policy.policy.handler if policy.policy is not None else None
    return RuleReference(kind="handler", handler=reference) if reference else None


def apply_handler_verdict(policy: CompiledPolicy, verdict: PolicyVerdict, answer: HandlerVerdict) -> PolicyVerdict:
    """Applies the answer of the policy's handler to the rules' `verdict`.

    The handler decides where it is the policy's only rule; beside others it can only tighten what they say.
    """
    rule = handler_rule(policy)
    # A handler can only tighten, and nothing is tighter than a denial.
    if rule is None or verdict.verdict == "deny":
        return verdict
    # On record as heard, also where its answer changes nothing.
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
        # Whom it names stays: a global rule or a later gate may ask them all the same.
        return dataclasses.replace(verdict, verdict="auto", rule=rule, rule_text=_words(answer), reasons=reasons)
    return _ask(verdict, answer, rule, why)


def _ask(verdict: PolicyVerdict, answer: HandlerVerdict, rule: RuleReference, why: str) -> PolicyVerdict:
    reasons: tuple[Words, ...] = (why,)
    if verdict.verdict == "ask" and verdict.rule_text:
        rule, reasons = replace(verdict.rule, handler=rule.handler), (*verdict.reasons, why)
    # Another reason to ask is another question, which no remembered answer to the first one answers.
    rule = replace(rule, answer="failed" if answer.failed else "admin" if answer.level == "admin" else "")
    words, level = _words(answer), answer.level
    return dataclasses.replace(verdict, verdict="ask", rule=rule, rule_text=words, reasons=reasons, level=level)


def _asked_on(policy: CompiledPolicy, terms: Terms, answer: HandlerVerdict) -> Terms:
    """Returns `terms` as the handler's answer changes them: others are asked, or more is asked of them."""
    rules = policy.rules
    if answer.verdict == "ask" and answer.level == "admin":
        terms = terms_of(rules, _ADMIN, terms.applied)
    return terms if answer.stricter is None else tighten_terms(terms, rules, answer.stricter.as_applied(answer.reason))


def _words(answer: HandlerVerdict) -> str:
    who = " admin" if answer.level == "admin" and answer.verdict == "ask" else ""
    return f"{answer.verdict}{who}: {answer.reason}" if answer.reason else f"{answer.verdict}{who}"
