"""Why people are asked, in words: never the name under which a rule is kept."""

from collections.abc import Mapping
from typing import Final

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.contracts.call import REQUIRES_APPROVAL, RuleReference
from signoff.formats.visible_text import one_line
from signoff.languages.catalogue import text

_OF_POLICIES: Final[Mapping[str, str]] = {
    "requires_approval": "rule.requires_approval",
    "auto_approve_if": "rule.auto_approve_if",
    "require_approval_if": "rule.require_approval_if",
}
_BY_KIND: Final[Mapping[str, str]] = {
    "permission": "rule.permission",
    "requester": "rule.requester",
    "in_doubt": "rule.in_doubt",
}
_WHY_CHARS: Final = 300


def rule_words(rule: RuleReference | None, rule_text: str, language: str) -> str:
    """Returns why people are asked, in a sentence for each that asks; "" where no rule is named.

    `rule_text` is the expression of the rule, or what a function gave as its reason.
    """
    if rule is None:
        return ""
    own = "" if rule.kind == "handler" else _own_words(rule, language)
    return " ".join(filter(None, (own, _handler_words(rule_text, language) if rule.handler else "")))


def rule_expression(rule: RuleReference | None, rule_text: str) -> str:
    """Returns the expression of the rule that asked, where `rule_words` has not said it; "" for none."""
    return "" if rule == REQUIRES_APPROVAL or (rule is not None and rule.handler) else rule_text


def _own_words(rule: RuleReference, language: str) -> str:
    # By the kind first: what a manifest names is a name, whatever else has texts under the same.
    key = _OF_POLICIES.get(rule.name, "") if rule.kind == "policy" else _BY_KIND.get(rule.kind, "")
    name = rule.name or rule.kind
    return text(key or "rule.other", language, **({} if key else {"rule": one_line(name, NAME_CHARS).text}))


def _handler_words(rule_text: str, language: str) -> str:
    # What a function says is its author's: in their words and their language.
    why = one_line(rule_text, _WHY_CHARS).text
    return text("rule.because", language, why=why) if why else text("rule.require_approval_if", language)
