"""Why people are asked, in words: never the name under which a rule is kept."""

from typing import Final

from signoff.approvals.argument_rows import NAME_CHARS
from signoff.formats.visible_text import one_line
from signoff.texts.catalogue import has_text, text

_HANDLER: Final = "handler:"
_WHY_CHARS: Final = 300


def rule_words(rule: str, rule_text: str, language: str) -> str:
    """Returns why people are asked, in a sentence; "" where no rule is named.

    `rule` is the field or the name of what decided, `rule_text` its expression, or what a function gave as its
    reason.
    """
    if rule.startswith(_HANDLER):
        # What a function says is its author's: in their words and their language.
        why = one_line(rule_text, _WHY_CHARS).text
        return text("rule.because", language, why=why) if why else text("rule.require_approval_if", language)
    if has_text(f"rule.{rule}"):
        return text(f"rule.{rule}", language)
    return text("rule.other", language, rule=one_line(rule, NAME_CHARS).text) if rule else ""


def rule_expression(rule: str, rule_text: str) -> str:
    """Returns the expression of the rule that asked, where `rule_words` has not said it; "" for none."""
    return "" if rule == "requires_approval" or rule.startswith(_HANDLER) else rule_text
