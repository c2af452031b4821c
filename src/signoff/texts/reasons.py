"""Writes the reasons for asking approvers in words."""

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


def rule_words(rule: RuleReference | None, rule_text: str, language: str, tool: str, compared: str = "") -> str:
    """`rule_text` is the rule's expression, or a function's reason. `compared` are the values that made it ask.

    `tool` is the tool's name for people, as visible text.
    """
    if rule is None:
        return ""
    if compared:
        return text("rule.because", language, why=f"{compared}.")
    own = "" if rule.kind == "handler" else _own_words(rule, language, tool)
    return " ".join(filter(None, (own, _handler_words(rule_text, language) if rule.handler else "")))


def rule_expression(rule: RuleReference | None, rule_text: str) -> str:
    """Return "" if `rule_words` contains the expression."""
    return "" if rule == REQUIRES_APPROVAL or (rule is not None and rule.handler) else rule_text


def _own_words(rule: RuleReference, language: str, tool: str) -> str:
    # Check the kind first: a name in a manifest may equal the key of an unrelated text.
    key = _OF_POLICIES.get(rule.name, "") if rule.kind == "policy" else _BY_KIND.get(rule.kind, "")
    name = one_line(rule.name or rule.kind, NAME_CHARS).text
    return text(key or "rule.other", language, rule=name, tool=tool)


def _handler_words(rule_text: str, language: str) -> str:
    # A function's reason is its author's, in the author's words and language.
    why = one_line(rule_text, _WHY_CHARS).text
    return text("rule.because", language, why=why) if why else text("rule.require_approval_if", language)
