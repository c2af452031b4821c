"""Receipts in words, whatever a turn put into them."""

from datetime import UTC, datetime

import pytest

from signoff.contracts.receipt import Receipt
from signoff.texts.catalogue import LANGUAGES, text
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import Formatter

NOW = datetime(2026, 11, 24, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("state", ["pending", "", "no such state"])
def test_a_receipt_that_does_not_say_how_it_ended_is_still_a_sentence(state: str, language: str) -> None:
    """A turn that cannot be read, or that made up its receipt, says `already_decided` with no ending."""
    told = Receipt(status="refused", code="already_decided", state=state)
    formatter = Formatter(language, UTC, NOW)
    assert receipt_words(told, formatter) == text("receipt.unavailable", language, why="")
    assert "the turn has ended" in receipt_words(told.model_copy(update={"message": "the turn has ended"}), formatter)
