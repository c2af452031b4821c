from typing import Any

from tables import table

from signoff.approvals import binding
from signoff.approvals.digest import call_digest, doubt_digest
from signoff.approvals.edit_diff import RowChange, edit_note, row_changes
from signoff.contracts.approval import CardRow
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.testing import a_decision, a_request

ASKED = a_request(id="main.s.t.c1.1", session="", digest="", definition="d", requester=Principal(user="guest"))
HASH = "h" * 64
FIVE = call_digest(
    tenant="main",
    session="",
    turn="t",
    call="c1.1",
    requester="guest",
    nonce="",
    tool="pay",
    definition="d",
    args={"amount": 5},
)


def answer(**fields: Any) -> Decision:
    return a_decision(**{"revision": None} | fields)


@table(
    ("fields", "revision", "named"),
    ({"question_hash": HASH, "revision": 1}, 1, True),
    ({"question_hash": HASH}, 1, True),
    ({"revision": 1}, 1, True),
    ({"question_hash": "other", "revision": 1}, 1, False),
    ({"question_hash": HASH, "revision": 1}, 2, False),
    ({"question_hash": HASH}, 2, False),
    ({"edited_args": {"amount": 5}, "revision": 1, "question_hash": "that of revision 1"}, 2, True),
    ({"edited_args": {"amount": 5.0}}, 2, True),
    ({"edited_args": {"amount": 5}, "revision": 1}, 1, False),
    ({"edited_args": {"amount": 5}, "revision": 2}, 2, False),
    ({"edited_args": {"amount": 6}, "revision": 1}, 2, False),
    ({"edited_args": {"amount": 2**60}, "revision": 1}, 2, False),
)
def test_answer_names_one_call_in_one_revision(fields: dict[str, object], revision: int, named: bool) -> None:
    question = replace(ASKED, revision=revision, edit_of=revision - 1, digest=FIVE)
    assert binding.is_answer_to(answer(**fields), question, HASH) is named


def test_outcome_question_has_its_own_digest() -> None:
    assert len({FIVE, doubt_digest(FIVE, 1), doubt_digest(FIVE, 2), doubt_digest("0" * 64, 1)}) == 4


def row(name: str, value: str) -> CardRow:
    return CardRow(name=name, label=name.title(), value=value)


def test_changes_are_shown_as_old_and_new_values() -> None:
    before = [row("amount", "420"), row("to", "Ana"), row("note", "x"), row("", "2 more not shown")]
    after = [row("amount", "380"), row("to", "Ana"), row("by", "card"), row("", "1 more not shown")]
    assert row_changes(before, after) == (
        RowChange("amount", "Amount", "420", "380"),
        RowChange("by", "By", "", "card"),
        RowChange("note", "Note", "x", ""),
    )


def test_model_gets_a_note_about_changed_arguments() -> None:
    found = edit_note([row("amount", "420"), row("note", "x")], [row("amount", "380")])
    assert found == (
        "A person changed arguments of this call before it ran: amount is 380 (was 420); note is nothing (was x)."
    )
    hidden = edit_note([row("pin", "hidden, 4 characters")], [row("pin", "hidden, 4 characters")])
    assert hidden == "A person changed arguments of this call before it ran; they are hidden."


@table(("count", "end"), (10, ""), (11, "; and 1 more"), (13, "; and 3 more"))
def test_model_gets_ten_changes_and_the_number_of_others(count: int, end: str) -> None:
    many = edit_note([], [row(f"a{n}", "1") for n in range(count)])
    assert many.endswith(f"; a9 is 1 (was nothing){end}.")
