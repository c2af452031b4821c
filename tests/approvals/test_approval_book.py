from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tables import table

from signoff.approvals import deadlines
from signoff.approvals.approval_book import ApprovalBook, read_decision
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.limits import REFUSALS_KEPT
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.testing import a_request

START = datetime(2026, 1, 1, tzinfo=UTC)
IDS = ("main.s.t.c1.1", "main.s.t.c1.2")
PEOPLE = ("ana", "ben", "eve")


def question(approval_id: str, revision: int = 1, quorum: int = 1) -> ApprovalRequest:
    about = {"id": approval_id, "call": approval_id.split("t.", 1)[1], "digest": f"digest-{approval_id}"}
    return a_request(**about, session="", revision=revision, quorum=quorum, timeout=3600.0)


def authority(person: str) -> Authority:
    allowed = person != "eve"
    return Authority(allowed=allowed, code="" if allowed else "not_allowed", subject=person, name=person)


class BookMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.book = ApprovalBook()
        self.now = START
        self.ended: dict[str, str] = {}
        self.approvals: dict[str, set[str]] = {approval_id: set() for approval_id in IDS}
        self.delivered: dict[str, Receipt] = {}
        self.book.open(deadlines.open_request(question(IDS[0]), self.now), self.now)
        self.book.open(deadlines.open_request(question(IDS[1], quorum=2), self.now), self.now)

    def open_until(self, approval_id: str) -> bool:
        return approval_id not in self.ended and self.now <= START + timedelta(hours=1)

    @rule(
        approval_id=st.sampled_from((*IDS, "main.s.t.c9.9")),
        person=st.sampled_from(PEOPLE),
        verdict=st.sampled_from(("approved", "denied")),
        revision=st.sampled_from((1, 1, 1, 2)),
        delivery=st.sampled_from(("", "d1", "d2", "d3")),
    )
    def answer(self, approval_id: str, person: str, verdict: str, revision: int, delivery: str) -> None:
        decision = Decision(
            approval_id=approval_id, revision=revision, verdict=verdict, subject=person, delivery_id=delivery
        )  # type: ignore[arg-type]
        key = f"{delivery}:{approval_id}:{revision}"
        receipt = self.book.precheck(decision, self.now) or self.book.settle(decision, authority(person), self.now)
        if delivery and key in self.delivered:
            assert receipt == replace(self.delivered[key], code="duplicate")
            return
        counts = approval_id in IDS and revision == 1 and person != "eve" and self.open_until(approval_id)
        assert (receipt.status in ("accepted", "counted")) == counts, receipt
        if not counts:
            return
        if delivery:
            self.delivered[key] = receipt
        self.count(approval_id, person, verdict)
        assert (receipt.status == "accepted") == (approval_id in self.ended)

    def count(self, approval_id: str, person: str, verdict: str) -> None:
        if verdict == "denied":
            self.ended[approval_id] = "denied"
            return
        self.approvals[approval_id].add(person)
        if len(self.approvals[approval_id]) >= (1 if approval_id == IDS[0] else 2):
            self.ended[approval_id] = "approved"

    @rule(minutes=st.integers(1, 40))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(approval_id=st.sampled_from(IDS))
    def deadline(self, approval_id: str) -> None:
        if self.now > START + timedelta(hours=1):
            request = self.book.get(approval_id)
            happening = deadlines.next_event(request) if request is not None else None
            if happening is not None:
                self.book.apply_due_event(approval_id, happening, self.now)
            self.ended.setdefault(approval_id, "timed_out")

    @rule(approval_id=st.sampled_from(IDS))
    def withdraw(self, approval_id: str) -> None:
        receipt = self.book.cancel(approval_id, "guest", "", self.now)
        assert (receipt.status == "accepted") == (approval_id not in self.ended)
        self.ended.setdefault(approval_id, "cancelled")

    @invariant()
    def states_agree(self) -> None:
        for approval_id in IDS:
            request = self.book.get(approval_id)
            assert request is not None
            assert request.state == self.ended.get(approval_id, "pending")
            if request.state == "approved":
                people = {vote.subject for vote in request.votes if vote.verdict == "approved"}
                assert len(people) >= request.quorum
                assert "eve" not in people

    @invariant()
    def refusals_are_bounded(self) -> None:
        assert len(self.book.refusals) == min(self.book.refused, REFUSALS_KEPT)


TestBook = BookMachine.TestCase


@table("verdict", "", None, "yes", "APPROVED", "approve", 1, True, ["approved"], {"a": 1})
def test_unknown_verdict_is_never_an_approval(verdict: Any) -> None:
    receipt = read_decision([{"approval_id": IDS[0], "verdict": verdict}])
    assert isinstance(receipt, Receipt)
    assert receipt.code == "malformed"
    assert "verdict" in receipt.message


def test_smallest_decision_needs_two_fields() -> None:
    decision = read_decision([{"approval_id": IDS[0], "verdict": "denied"}])
    assert isinstance(decision, Decision)
    assert (decision.assurance, decision.subject, decision.revision) == ("none", "", None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
)


@given(st.lists(json_values, max_size=2))
def test_any_envelope_is_read_without_an_exception(envelopes: list[Any]) -> None:
    assert isinstance(read_decision(envelopes), Decision | Receipt)


@given(st.dictionaries(st.sampled_from([*Decision.model_fields]), json_values))
def test_any_field_value_is_read_without_an_exception(body: dict[str, Any]) -> None:
    assert isinstance(read_decision([body]), Decision | Receipt)
