from typing import get_args, get_type_hints

from tables import table

from signoff.contracts.call import IN_DOUBT_RULE, PERMISSION_RULE, REQUESTER_RULE, REQUIRES_APPROVAL, RuleReference
from signoff.languages.catalogue import has_text, language_codes, text
from signoff.registry.gates.judged_call import JudgedCall
from signoff.texts.reasons import rule_expression, rule_words

KINDS = get_args(get_type_hints(JudgedCall.explained_kind.fget)["return"])


@table("kind", *KINDS)
def test_every_kind_of_gate_decision_has_text(kind: str) -> None:
    assert set(KINDS) == {"run", "ask", "settled", "question"}
    assert has_text(f"try.{kind}")


def test_card_shows_that_an_approval_overrides_a_permission() -> None:
    assert "overrides it once" in rule_words(PERMISSION_RULE, "", "en", "Pay")


@table("name", "because", "other", "permission", "requires_approval", "handler:a:b")
@table("language", *language_codes())
def test_global_rule_is_shown_by_any_name(language: str, name: str) -> None:
    """The name may be the key of a text, which would show a wrong text or none."""
    rule = RuleReference(kind="global", name=name)
    assert rule_words(rule, "true", language, "Pay") == text("rule.other", language, rule=name)
    assert rule_expression(rule, "true") == "true"


@table("language", *language_codes())
def test_every_gate_reason_has_its_own_sentence(language: str) -> None:
    policy = [RuleReference(name=field) for field in ("auto_approve_if", "require_approval_if")]
    own = (REQUIRES_APPROVAL, PERMISSION_RULE, REQUESTER_RULE, IN_DOUBT_RULE)
    by_name = text("rule.other", language, rule="?").partition("?")[0]
    page_text = [rule_words(rule, "", language, "Pay") for rule in (*own, *policy)]
    assert len(set(page_text)) == len(page_text)
    assert not [each for each in page_text if "_" in each or each.startswith(by_name)]
    assert "Pay" in page_text[0]


def test_handler_reason_follows_the_rules_text() -> None:
    alone = RuleReference(kind="handler", handler="rules:limits", answer="admin")
    both = RuleReference(name="require_approval_if", handler="rules:limits", answer="admin")
    reason = "Needs approval: a new payee"
    assert rule_words(alone, "a new payee", "en", "Pay") == reason
    assert rule_words(both, "a new payee", "en", "Pay") == f"{text('rule.require_approval_if', 'en')} {reason}"
    assert rule_expression(alone, "a new payee") == rule_expression(both, "a new payee") == ""
    assert rule_words(None, "", "en", "Pay") == ""
