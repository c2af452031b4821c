from datetime import UTC, datetime, timedelta
from typing import Any

from answering import AnswerList
from example_counts import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from signoff.approvals import binding, deadlines
from signoff.approvals.digest import call_digest
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.person import Principal
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace
from signoff.testing import a_request

START = datetime(2026, 1, 1, tzinfo=UTC)
ID = "main.s.t.c1.1"
HOUR = timedelta(hours=1)
AMOUNTS = (5, 6, 7)


def digest(amount: int) -> str:
    return call_digest(
        tenant="main",
        session="",
        turn="t",
        call="c1.1",
        requester="guest",
        nonce="",
        tool="pay",
        definition="d",
        args={"amount": amount},
    )


def question(amount: int, **fields: Any) -> ApprovalRequest:
    given: dict[str, Any] = {
        "id": ID, "session": "", "digest": digest(amount), "definition": "d",
        "args": Content(inline={"amount": amount}),
        "card": Card(effect=f"Pay {amount}"), "requester": Principal(user="guest"), "approvers": ("role:finance",),
        "escalate_to": ("role:cfo",), "edit": "approve", "timeout": 36_000.0,
    }  # fmt: skip
    return a_request(**given | fields)


class ApprovalModel(RuleBasedStateMachine):
    @initialize(
        quorum=st.integers(1, 3), veto=st.booleans(), put_off=st.booleans(), remind=st.booleans(), doubt=st.booleans()
    )
    def ask(self, quorum: int, veto: bool, put_off: bool, remind: bool, doubt: bool) -> None:
        self.quorum, self.veto, self.doubt, self.may_put_off = quorum, veto, doubt, put_off
        self.now, self.last = START, START + HOUR * (20 if put_off else 10)
        self.revision, self.amount, self.ended = 1, AMOUNTS[0], ""
        self.votes: list[tuple[str, str, str]] = []
        self.receipts: dict[str, Receipt] = {}
        self.list = AnswerList(
            self.opened(
                self.amount,
                kind="in_doubt" if doubt else "approval",
                on_timeout="escalate" if put_off else "deny",
                **self.terms(remind),
            )
        )
        self.remind = remind

    def terms(self, remind: bool) -> dict[str, Any]:
        spans = {"remind_after": 3_600.0, "escalate_after": 7_200.0} if remind else {}
        return {"quorum": self.quorum, "veto": self.veto, **spans}

    def opened(self, amount: int, **fields: Any) -> ApprovalRequest:
        return deadlines.open_request(question(amount, **fields), self.now)

    @property
    def request(self) -> ApprovalRequest:
        return self.list.request(self.now)

    @rule(
        person=st.sampled_from(("ana", "ben", "cleo", "eve")),
        seat=st.sampled_from(("", "", "ana", "dora")),
        verdict=st.sampled_from(("approved", "approved", "approved", "denied", "answered", "happened")),
        amount=st.sampled_from((0, 0, 0, *AMOUNTS)),
        revision=st.sampled_from((0, 0, 0, -1, 1)),
        delivery=st.sampled_from(("", "", "d1", "d2")),
        late=st.sampled_from((None, None, -1, 1)),
    )
    def answer(
        self, person: str, seat: str, verdict: str, amount: int, revision: int, delivery: str, late: int | None
    ) -> None:
        named = max(self.revision + revision, 1)
        fields: dict[str, Any] = {"approval_id": ID, "revision": named, "verdict": verdict, "delivery_id": delivery}
        fields |= {"edited_args": {"amount": amount}} if amount else {}
        fields |= {"answer": "no"} if verdict == "answered" else {}
        decision = Decision.model_validate(fields | {"signature": "s" if late else ""})
        received = None if late is None else self.last + late * HOUR / 2
        allowed = person != "eve"
        authority = Authority(
            allowed=allowed, subject=person, on_behalf="" if seat == person else seat, received_at=received
        )
        key = f"{delivery}:{ID}:{named}"
        receipt = self.send(decision, authority, amount)
        if delivery and key in self.receipts:
            assert receipt == replace(self.receipts[key], code="duplicate")
            return
        fits = not amount or (verdict == "approved" and not self.doubt)
        fits = fits and (self.doubt or verdict != "happened")
        fits = fits and (verdict != "answered" or (not self.doubt and self.quorum == 1))
        in_time = (received or self.now) <= self.last
        counts = not self.ended and fits and allowed and in_time and named == self.revision
        assert (receipt.status != "refused") == counts, receipt
        if counts:
            self.count(person, seat or person, verdict, amount)
            if delivery:
                self.receipts[key] = receipt
            assert (receipt.status == "accepted") == bool(self.ended)

    def send(self, decision: Decision, authority: Authority, amount: int) -> Receipt:
        return self.list.take(decision, authority, self.now, self.changed(amount) if amount else None)

    def changed(self, amount: int) -> ApprovalRequest:
        put_off = "escalate" if self.may_put_off else "deny"
        follows = {"revision": self.revision + 1, "edit_of": self.revision, "on_timeout": put_off}
        return self.opened(amount, **follows, **self.terms(self.remind))

    def count(self, person: str, seat: str, verdict: str, amount: int) -> None:
        if amount:
            self.revision, self.amount, self.votes = self.revision + 1, amount, []
            self.last = self.now + HOUR * (20 if self.may_put_off else 10)
        touched = [each for each in self.votes if each[0] == person or each[1] == seat]
        repeats = any(each[2] == verdict for each in touched)
        stands_in = seat != person and verdict != "denied" and any(each[0] != person for each in touched)
        if repeats or stands_in:
            return
        self.votes = [each for each in self.votes if each not in touched] + [(person, seat, verdict)]
        verdicts = [each[2] for each in self.votes]
        if "happened" in verdicts:
            self.ended = "happened"
        elif "answered" in verdicts:
            self.ended = "answered"
        elif verdicts.count("denied") >= (1 if self.veto or self.doubt else self.quorum):
            self.ended = "denied"
        elif verdicts.count("approved") >= self.quorum:
            self.ended = "approved"

    @rule(minutes=st.integers(1, 400))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule()
    def turn_looks_at_the_deadline(self) -> None:
        if self.now > self.last and not self.ended:
            self.list.end("expired", self.now)
            self.ended = "timed_out"

    @rule()
    def turn_cancels(self) -> None:
        if not self.ended:
            self.list.end("cancelled", self.now)
            self.ended = "cancelled"

    @invariant()
    def the_ending_is_the_models(self) -> None:
        open_state = "timed_out" if self.now > self.last else "pending"
        assert self.request.state == (self.ended or open_state)
        assert (self.request.revision, self.request.digest) == (self.revision, digest(self.amount))

    @invariant()
    def an_approval_has_its_people(self) -> None:
        request = self.request
        yes = [vote for vote in request.votes if vote.verdict == "approved"]
        assert len({vote.subject for vote in request.votes}) == len(request.votes)
        assert len({vote.on_behalf or vote.subject for vote in request.votes}) == len(request.votes)
        assert all(binding.is_answer_to(vote.decision, request, request.question_hash) for vote in yes)
        assert "eve" not in {vote.subject for vote in request.votes}
        if request.state == "approved":
            assert len(yes) >= self.quorum

    @invariant()
    def escalation_only_adds(self) -> None:
        added = ("role:cfo",) if self.request.escalated else ()
        assert self.request.approvers == ("role:finance", *added)


TestApprovals = ApprovalModel.TestCase
EXAMPLES = examples(3 * settings().max_examples)
# The settings of the profile, so that repeated test runs over many changes take fewer examples.
TestApprovals.settings = settings(
    max_examples=examples(3 * settings().max_examples), stateful_step_count=30, deadline=None
)
