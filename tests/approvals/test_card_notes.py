"""What a card says of why it is asked: from what the store has, and the same at every try."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.approvals.card_notes import NOT_RUN, POLICY_CHANGED, TOOL_CHANGED, editor_note, fallback_note, repeat_note
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.content import Remark
from signoff.formats.replace import replace
from signoff.languages.remarks import english
from signoff.testing import a_request

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def asked(revision: int = 1, state: Any = "pending", **fields: Any) -> ApprovalRequest:
    """A request of the call `c1.1`."""
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
def test_why_it_is_asked_again(before: tuple[ApprovalRequest, ...], note: Remark | None) -> None:
    assert repeat_note(before, "c1.1", "d", "p") == note


@table("state", "pending", "approved", "denied")
def test_what_was_asked_since_the_reply_was_kept_is_this_very_question(state: Any) -> None:
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


def test_whoever_changed_it_and_what_it_stands_in_for() -> None:
    assert english(editor_note("Ana Sousa")) == "Ana Sousa changed the arguments"
    note = fallback_note(("rates", "old"))
    assert note is not None
    assert english(note) == "this is a fallback of `rates`, `old`"
    assert fallback_note(()) is None
