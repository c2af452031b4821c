from datetime import UTC, datetime

from tables import table

from signoff.approvals.request_state import ENDINGS
from signoff.contracts.approval import Ending
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH, language_codes, text
from signoff.testing.builders import a_request
from signoff.texts.endings import reason_words, receipt_words
from signoff.texts.formatter import Formatter

NOW = datetime(2026, 11, 24, 8, 0, tzinfo=UTC)


@table("language", *language_codes())
@table("state", "pending", "", "no such state")
def test_receipt_without_an_end_state_is_still_a_sentence(state: str, language: str) -> None:
    """An unreadable turn, or a made-up receipt, reports `already_decided` without an end state."""
    receipt = Receipt(status="refused", code="already_decided", state=state)
    formatter = Formatter(language, UTC, NOW)
    assert receipt_words(receipt, formatter) == text("receipt.unavailable", language, why="")
    assert "the turn has ended" in receipt_words(replace(receipt, message="the turn has ended"), formatter)


@table("language", *sorted(set(language_codes()) - {ENGLISH}))
@table("ended_as", *ENDINGS)
def test_our_reason_of_a_withdrawal_is_translated(ended_as: Ending, language: str) -> None:
    reason = ENDINGS[ended_as]
    gone = a_request(state="cancelled", reason=reason, ended_as=ended_as)
    assert reason_words(gone, ENGLISH) == reason
    assert reason_words(gone, language) not in (reason, "")
    for words in (reason, "is required", "every line is required", f"{reason} "):
        theirs = replace(gone, reason=words, decided_by="ana")
        assert reason_words(theirs, language) == words
    for words in ("is required", f"{reason}; {reason}", f"every line {reason}", "frozen: drill", ""):
        assert reason_words(replace(gone, reason=words), language) == words
    unsaid = replace(gone, ended_as=None)
    assert reason_words(unsaid, language) == reason
    denied = replace(gone, state="denied")
    assert reason_words(denied, language) == reason
