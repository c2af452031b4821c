"""What the inbox says of gates: nothing that they can answer is left without words."""

from typing import get_args, get_type_hints

import pytest

from signoff.registry.gates.local_decision import LocalGateDecision
from signoff.registry.hooks import PERMISSION_RULE
from signoff.texts.catalogue import has_text
from signoff.texts.reasons import rule_words

KINDS = get_args(get_type_hints(LocalGateDecision.explained_kind.fget)["return"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_decision_has_words(kind: str) -> None:
    """Also the question to a permission check (`awaits_permission`), which no page asks."""
    assert set(KINDS) == {"run", "ask", "settled", "question"}
    assert has_text(f"try.{kind}")


def test_a_card_says_that_it_overrides_a_permission() -> None:
    """Whoever answers must know that their yes is more than the policy asks for."""
    assert "overrides it once" in rule_words(PERMISSION_RULE, "", "en")
