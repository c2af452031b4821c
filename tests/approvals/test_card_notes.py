from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.approvals.card import NOTE_CHARS, render_card
from signoff.approvals.card_notes import (
    NOT_RUN,
    POLICY_CHANGED,
    TOOL_CHANGED,
    cut_notes,
    editor_note,
    fallback_note,
    repeat_note,
)
from signoff.approvals.redaction import HIDDEN, redact_remarks
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import REDACTION_CHARS
from signoff.formats.replace import replace
from signoff.languages.remarks import english, remark_text
from signoff.testing import a_request

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def asked(revision: int = 1, state: Any = "pending", **fields: Any) -> ApprovalRequest:
    return a_request(**{"revision": revision, "state": state, "definition": "d", "policy_hash": "p"} | fields)


@table(
    ("before", "note"),
    ((), None),
    ((asked(),), None),
    ((asked(definition="old"),), TOOL_CHANGED),
    ((asked(policy_hash="old"),), POLICY_CHANGED),
    ((asked(state="approved"),), NOT_RUN),
    ((asked(state="lapsed"),), NOT_RUN),
    ((asked(state="cancelled"),), None),
    ((asked(definition="old"), asked(2)), TOOL_CHANGED),
    ((asked(state="lapsed"), asked(2)), NOT_RUN),
    ((asked(call="c1.2", definition="old"),), None),
    ((asked(kind="in_doubt", definition="old"),), None),
)
def test_note_explains_a_repeated_request(before: tuple[ApprovalRequest, ...], note: Remark | None) -> None:
    assert repeat_note(before, "c1.1", "d", "p") == note


@table("state", "pending", "approved", "denied")
def test_question_after_the_kept_reply_is_the_same_question(state: Any) -> None:
    before, later = asked(state="lapsed", ended_at=NOW, ended_as="lapsed"), asked(2, state, opened_at=NOW)
    assert repeat_note((before, later), "c1.1", "d", "p", NOW) == NOT_RUN
    assert repeat_note((later,), "c1.1", "d", "p", NOW) is None
    assert repeat_note((before, later), "c1.1", "d", "p", NOW, 1) == NOT_RUN
    first = asked(state=state, opened_at=NOW)
    assert repeat_note((first,), "c1.1", "d", "p", NOW) is None
    note = NOT_RUN if state == "approved" else None
    assert repeat_note((first,), "c1.1", "d", "p", NOW, 1) == note
    older = (asked(2, "approved", opened_at=NOW - timedelta(milliseconds=1)),)
    assert repeat_note(older, "c1.1", "d", "p", NOW) == NOT_RUN
    assert repeat_note((replace(later, definition="old"),), "c1.1", "d", "p", NOW) == TOOL_CHANGED


def test_note_names_the_editor_and_the_replaced_tools() -> None:
    assert english(editor_note("Ana Sousa")) == "Ana Sousa edited the arguments"
    note = fallback_note(("rates", "old"))
    assert note is not None
    assert english(note) == "this is a fallback of `rates`, `old`"
    assert fallback_note(()) is None


def drawn(*notes: Words, **args: Any) -> Card:
    return render_card(effect="", title="", tool="pay", args=args, schema={}, secrets=("pin",), notes=notes)


def german(card: Card) -> str:
    return remark_text(card.notes, "de")


def test_note_with_a_secret_is_redacted_in_every_language() -> None:
    card = drawn(
        editor_note("Bo of 4711"), Remark.of("misfit", detail=(Remark.of("constant", value="4711"),)), pin="4711"
    )
    assert german(card) == (
        f"Bo of {HIDDEN} hat die Argumente bearbeitet; Die Argumente passen nicht zum Schema: muss `{HIDDEN}` sein."
    )
    assert card.note == f"Bo of {HIDDEN} edited the arguments; The arguments do not fit the schema: must be `{HIDDEN}`."


def test_secret_cannot_hide_our_own_text() -> None:
    for pin in ("the tool changed", english(TOOL_CHANGED)):
        assert drawn(TOOL_CHANGED, pin=pin).notes == (TOOL_CHANGED,)


def test_note_that_takes_too_long_to_search_is_withheld_in_every_language() -> None:
    many = [f"secret {number}" for number in range(2_000)]
    (found,) = redact_remarks(["x" * (REDACTION_CHARS // len(many) + 1)], many)
    assert english(found) == "a note that may repeat a secret value is masked"
    assert remark_text(found, "de") == "eine Notiz, die einen geheimen Wert wiederholen kann, ist verdeckt"


def test_long_note_is_truncated_in_every_language() -> None:
    card = drawn(NOT_RUN, editor_note("Bo" * NOTE_CHARS), TOOL_CHANGED, POLICY_CHANGED)
    assert (card.note[-1:], len(card.note)) == ("…", NOTE_CHARS)
    before, changed, more = german(card).split("; ")
    assert (before, more) == (remark_text(NOT_RUN, "de"), "…")
    assert changed.startswith("BoBo")
    assert changed.endswith("… hat die Argumente bearbeitet")
    assert len(changed) < NOTE_CHARS


def test_note_with_many_problems_is_truncated() -> None:
    problems = tuple(Remark.of("at", place=f"`a{number}`", detail=Remark.of("required")) for number in range(100))
    card = drawn(Remark.of("misfit", detail=problems))
    assert german(card).startswith("Die Argumente passen nicht zum Schema: `a0` ist nötig; `a1` ist nötig")
    assert german(card).endswith("; ….")
    assert len(german(card)) < 2 * NOTE_CHARS


def test_invisible_characters_in_a_note_are_marked_in_every_language() -> None:
    card = drawn(editor_note("Bo\u202e\nBerg"), "again\u200b")
    assert german(card) == "Bo⟦U+202E⟧⏎Berg hat die Argumente bearbeitet; again⟦U+200B⟧"
    assert card.note == "Bo⟦U+202E⟧⏎Berg edited the arguments; again⟦U+200B⟧"


def test_name_of_a_repeating_argument_is_marked_once() -> None:
    card = drawn(**{"pin": "4711", "a\u202e": "4711"})
    assert card.note.split("; ")[2:] == ["a secret value is repeated in `a⟦U+202E⟧`, and masked there"]


@table(
    ("notes", "limit", "kept"),
    ((), 5, ()),
    (("12345",), 5, ("12345",)),
    (("123456",), 5, ("1234…",)),
    (("12345", "1"), 5, ("12345", "…")),
    (("123456", "1"), 5, ("1234…", "…")),
    (("1234567890", "12345"), 15, ("1234567890", "12345")),
    (("1234567890", "123456"), 15, ("1234567890", "1234…")),
    (("12345", "12345", "123456", "1"), 15, ("12345", "12345", "1234…", "…")),
)
def test_notes_share_one_limit(notes: tuple[str, ...], limit: int, kept: tuple[str, ...]) -> None:
    assert cut_notes(notes, limit) == kept
