from datetime import UTC, datetime

from tables import table

from signoff.approvals.request_state import ENDINGS
from signoff.contracts.approval import Ending
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH, language_codes, text
from signoff.testing.builders import a_request
from signoff.texts.endings import closing_words, reason_words, receipt_words
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


def test_card_of_an_answered_request_ends_with_its_author() -> None:
    over = a_request(state="answered", decided_by="ana", decided_name="Ana", decided_channel="inbox", decided_at=NOW)
    formatter = Formatter(ENGLISH, UTC, NOW)
    assert closing_words(over, formatter).startswith("Answered by Ana in the inbox, ")
    accepted = Receipt(status="accepted", state="answered", verdict="answered")
    assert receipt_words(accepted, formatter) == "Answered. The call will not run, and the agent reads your answer."
    late = Receipt(
        status="refused", code="already_decided", state="answered", verdict="answered", decided_name="Ana",
        decided_at=NOW, channel="inbox",
    )  # fmt: skip
    assert "answered by Ana in the inbox" in receipt_words(late, formatter)[:200].replace("Answered", "answered")
