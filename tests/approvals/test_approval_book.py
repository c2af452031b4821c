from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from some import some
from tables import table

from signoff.approvals import deadlines
from signoff.approvals.approval_book import ApprovalBook, malformed_receipt, read_decision
from signoff.contracts.activity_messages import AnswersReply, Wake
from signoff.contracts.approval import ApprovalState, Settlement, TurnQuestion
from signoff.contracts.decision import Decision
from signoff.contracts.limits import REFUSALS_KEPT
from signoff.contracts.receipt import Receipt
from signoff.testing import a_decision

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
ID, OTHER = "main.s.t.c1.1", "main.s.t.c1.2"
HOUR = timedelta(hours=1)
UNKNOWN = Receipt(status="refused", code="unknown", approval_id="x.y", message="no such request in this turn")
STALE = Receipt(status="refused", code="stale", approval_id=ID, state="pending")
YES = Settlement(state="approved", decided_by="ana", decided_name="Ana", decided_at=LATER, reason="fine")


def question(approval_id: str = ID, revision: int = 1, **fields: Any) -> TurnQuestion:
    given: dict[str, Any] = {
        "id": approval_id,
        "call": approval_id.split("t.", 1)[1],
        "tool": "pay",
        "revision": revision,
        "question_hash": f"h{revision}",
        "effect": "Pay 5",
        "timeout": 3600.0,
        "opened_at": NOW,
    }
    return TurnQuestion(**given | fields)


def book(**fields: Any) -> ApprovalBook:
    made = ApprovalBook()
    made.open(question(**fields))
    return made


def wake(number: int = 1, revision: int = 1, approval_id: str = ID) -> Wake:
    return Wake(approval_id=approval_id, revision=revision, number=number)


def reply(seen: int = 1, settlement: Settlement = YES, **fields: Any) -> AnswersReply:
    return AnswersReply(seen=seen, settlement=settlement, **fields)


def test_book_lists_all_and_pending_questions() -> None:
    both = book()
    second = both.open(question(OTHER, opened_at=LATER))
    first = some(both.get(ID))
    assert (first.expires_at, second.expires_at, both.get(OTHER)) == (NOW + HOUR, LATER + HOUR, second)
    assert both.all() == both.pending() == (first, second)
    assert both.waits(ID)
    both.apply_due_event(ID, some(deadlines.next_event(first)), LATER)
    assert both.pending() == (second,)
    assert [each.state for each in both.all()] == ["timed_out", "pending"]
    assert not both.waits(ID)
    assert not both.waits("x.y")
    assert both.get("x.y") is None


def test_later_revision_replaces_the_earlier_one() -> None:
    made = book()
    made.open(question(revision=2, opened_at=LATER))
    assert [(each.revision, each.opened_at) for each in made.all()] == [(2, LATER)]


def test_state_comes_from_the_store() -> None:
    made = book()
    made.take(question(), reply(edited_by="bo", remarks="fine"), LATER)
    taken = some(made.get(ID))
    assert (taken.state, taken.decided_by, taken.reason) == ("approved", "ana", "fine")
    assert (taken.edited_by, taken.remarks) == ("bo", "fine")
    assert [(each.kind, each.data["state"]) for each in made.unwritten.take()] == [("ending", "approved")]


def test_question_that_the_turn_has_ended_keeps_its_state() -> None:
    made = book()
    made.cancel(ID, "guest", "enough", NOW)
    made.take(question(), reply(), LATER)
    assert some(made.get(ID)).state == "cancelled"


def test_state_of_an_earlier_revision_changes_nothing() -> None:
    made = book()
    made.open(question(revision=2))
    made.take(question(), reply(), LATER)
    assert some(made.get(ID)).state == "pending"


def test_answer_of_a_restored_store_counts_though_its_number_was_seen() -> None:
    made = book()
    made.take(question(), reply(2, Settlement()), NOW)
    assert made.known_reply(wake(1)) is None
    made.take(question(), reply(1), LATER)
    assert some(made.known_reply(wake(1))).state == "approved"


def test_wake_of_a_pending_question_needs_a_look() -> None:
    made = book()
    assert made.known_reply(wake()) is None
    made.take(question(), reply(1, Settlement()), NOW)
    assert made.known_reply(wake()) is None
    assert made.known_reply(wake(), looked=True) == Receipt(status="accepted", approval_id=ID, state="pending")
    assert made.known_reply(wake(2), looked=True) is None


def test_wake_for_an_answer_that_the_turn_never_read_is_refused() -> None:
    made = book()
    assert some(made.known_reply(wake(approval_id="x.y"))) == UNKNOWN
    assert made.known_reply(wake(revision=2)) == STALE
    made.cancel(ID, "guest", "", NOW)
    assert some(made.known_reply(wake())).code == "cancelled"


def test_repeated_wake_of_an_earlier_revision_is_accepted() -> None:
    made = book()
    made.take(question(), reply(1), NOW)
    made.lapse(ID, NOW)
    made.open(question(revision=2))
    assert some(made.known_reply(wake())).status == "accepted"
    assert some(made.known_reply(wake(2))).code == "stale"


def test_refused_edit_keeps_its_receipt() -> None:
    made = book()
    refused = Receipt(status="refused", code="not_allowed", approval_id=ID)
    made.refuse_edit(ID, 1, refused)
    made.take(question(), reply(1, Settlement()), NOW)
    assert made.known_reply(wake()) == refused
    assert made.refused_edits(ID) == (1,)
    assert made.refused_edits(OTHER) == ()


def test_edit_without_an_answer_of_the_gates_is_judged_again() -> None:
    made = book()
    made.put_off_edit(ID, 1)
    made.take(question(), reply(1, Settlement()), NOW)
    assert made.known_reply(wake(), looked=True) is None
    made.open(question(revision=2))
    assert some(made.known_reply(wake())).status == "accepted"


def test_withdrawal_is_accepted_once() -> None:
    made = book()
    done = made.cancel(ID, "guest", "enough", LATER)
    assert done == Receipt(
        status="accepted", approval_id=ID, state="cancelled", decided_by="guest", decided_at=LATER, reason="enough"
    )
    assert made.refused == 0
    late = made.cancel(ID, "guest", "", LATER)
    assert (late.status, late.code, late.reason) == ("refused", "cancelled", "enough")
    assert list(made.refusals) == [late]
    assert made.cancel("x.y", "guest", "", NOW) == UNKNOWN


def test_lapsed_approval_is_reported_as_stale() -> None:
    made = book()
    made.take(question(), reply(), NOW)
    assert made.receipt(ID).code == "already_decided"
    made.lapse(ID, NOW)
    assert (made.receipt(ID).code, made.receipt(ID).decided_by) == ("stale", "ana")
    assert made.receipt("x.y") == UNKNOWN


WITHDRAWAL = malformed_receipt("`verdict`: a withdrawal is not a decision; use `cancel`", ID)


@table(
    ("fields", "receipt"),
    ({"approval_id": "x.y"}, UNKNOWN),
    ({"revision": 2}, STALE),
    ({"question_hash": "other"}, STALE),
    ({"verdict": "withdrawn"}, WITHDRAWAL),
)
def test_raw_answer_to_another_question_needs_no_look(fields: dict[str, Any], receipt: Receipt) -> None:
    assert book().untakable(a_decision(**fields)) == receipt


def test_raw_answer_without_a_revision_means_the_first_one() -> None:
    assert book().untakable(a_decision(revision=None)) is None
    assert book(revision=2).untakable(a_decision(revision=None)) == STALE


def test_receipt_of_a_raw_answer_belongs_to_its_revision() -> None:
    made = book(revision=2)
    made.keep_receipt(a_decision(delivery_id="d1", revision=None), Receipt(status="accepted", approval_id=ID))
    assert some(made.untakable(a_decision(delivery_id="d1", revision=1))).code == "duplicate"
    assert made.untakable(a_decision(delivery_id="d1", revision=2)) is None


def test_accepted_edit_counts_while_its_question_waits() -> None:
    made = book()
    assert made.edited_receipt(ID) == Receipt(status="counted", approval_id=ID, state="pending")
    made.take(question(), reply(), LATER)
    assert made.edited_receipt(ID) == Receipt(
        status="accepted", approval_id=ID, state="approved", verdict="approved", decided_by="ana", decided_name="Ana",
        decided_at=LATER, reason="fine",
    )  # fmt: skip


def test_timed_event_after_the_end_adds_no_entry() -> None:
    made = book()
    due = some(deadlines.next_event(some(made.get(ID))))
    made.cancel(ID, "guest", "enough", NOW)
    made.apply_due_event(ID, due, LATER)
    assert [each.kind for each in made.unwritten.take()] == ["ending"]


def test_decision_nested_too_deeply_for_its_reader_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(_: Any) -> Decision:
        raise RecursionError

    monkeypatch.setattr(Decision, "model_validate", too_deep)
    assert read_decision([{"approval_id": ID}]) == malformed_receipt("a decision is one JSON object", ID)


def test_raw_answer_to_a_pending_question_needs_a_look() -> None:
    made = book()
    assert made.untakable(a_decision()) is None
    made.take(question(), reply(), LATER)
    assert some(made.untakable(a_decision())).code == "already_decided"


def test_repeated_raw_answer_gets_its_receipt_again() -> None:
    made, posted = book(), a_decision(delivery_id="d1")
    accepted = Receipt(status="accepted", approval_id=ID)
    made.keep_receipt(posted, accepted)
    made.keep_receipt(a_decision(delivery_id=""), accepted)
    assert some(made.untakable(posted)).code == "duplicate"
    assert made.untakable(a_decision(delivery_id="d2")) is None
    assert made.untakable(a_decision(delivery_id="")) is None


def test_fifty_refusals_are_kept_and_all_are_counted() -> None:
    made = ApprovalBook()
    assert (made.refused, list(made.refusals), made.all()) == (0, [], ())
    for number in range(REFUSALS_KEPT + 2):
        found = malformed_receipt(str(number))
        assert made.reject(found) is found
    assert made.refused == REFUSALS_KEPT + 2
    assert [each.message for each in made.refusals] == [str(n) for n in range(2, REFUSALS_KEPT + 2)]


class BookMachine(RuleBasedStateMachine):
    """A store adds answers in order, and is restored. Wakes arrive late, twice, or never, and looks in between."""

    def __init__(self) -> None:
        super().__init__()
        self.book = book()
        self.stored: list[ApprovalState] = []
        self.revision, self.ended, self.read = 1, "", 0

    def state(self) -> ApprovalState:
        return next((each for each in self.stored if each != "pending"), "pending")

    @rule(verdict=st.sampled_from(("pending", "pending", "approved", "denied")))
    def answer(self, verdict: ApprovalState) -> None:
        if self.state() == "pending":
            self.stored.append(verdict)

    @rule(left=st.integers(0, 2))
    def restore(self, left: int) -> None:
        if not self.ended:
            self.stored = self.stored[:left]

    @rule(number=st.integers(1, 4), revision=st.sampled_from((0, 0, 0, 1)), looked=st.booleans())
    def wake(self, number: int, revision: int, looked: bool) -> None:
        receipt = self.book.known_reply(wake(number, self.revision + revision), looked=looked)
        if revision:
            assert some(receipt).code == "stale"
        elif not self.ended and not looked:
            assert receipt is None
        elif number <= self.read:
            assert some(receipt).status == "accepted"
        elif self.ended:
            assert some(receipt).status == "refused"
        else:
            assert receipt is None

    @rule(behind=st.sampled_from((0, 0, 0, 1)))
    def look(self, behind: int) -> None:
        known = self.stored[: len(self.stored) - behind]
        state = next((each for each in known if each != "pending"), "pending")
        self.book.take(question(revision=self.revision), reply(len(known), Settlement(state=state)), NOW)
        if not self.ended:
            self.read, self.ended = len(known), "" if state == "pending" else state

    @rule()
    def cancel(self) -> None:
        accepted = self.book.cancel(ID, "", "", NOW).status == "accepted"
        assert accepted == (not self.ended)
        self.ended = self.ended or "cancelled"

    @invariant()
    def state_is_the_store_state_or_the_turns_own_end(self) -> None:
        assert some(self.book.get(ID)).state == (self.ended or "pending")
        assert self.ended in ("", "cancelled", self.state())

    @invariant()
    def refusals_are_bounded(self) -> None:
        assert len(self.book.refusals) == min(self.book.refused, REFUSALS_KEPT)


TestBook = BookMachine.TestCase
