"""Takes answers in memory by the rules that the store applies under its lock."""

from datetime import datetime

from signoff.approvals import machine
from signoff.approvals.request_state import StoredAnswer, request_at
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Ending, Question
from signoff.contracts.decision import Decision
from signoff.contracts.receipt import Receipt
from signoff.formats.replace import replace


def decide(
    request: ApprovalRequest, decision: Decision, authority: Authority, now: datetime
) -> tuple[ApprovalRequest, Receipt]:
    """A refusal returns `request` unchanged."""
    refused = machine.examine(request, decision, authority, now)
    if refused is not None:
        return request, refused
    after = machine.count_vote(request, machine.vote_of(decision, authority, authority.received_at or now))
    return after, machine.receipt_after(request, after)


class AnswerList:
    """The revisions of one question, and the answers in the order of storing."""

    def __init__(self, question: Question) -> None:
        self.questions = [question]
        self.answers: list[StoredAnswer] = []
        self._receipts: dict[tuple[str, int], Receipt] = {}

    def request(self, now: datetime) -> ApprovalRequest:
        return request_at(self.questions[-1], self.answers, now)

    def take(self, decision: Decision, authority: Authority, now: datetime, asked: Question | None = None) -> Receipt:
        """`asked` is the question about the arguments of an edit."""
        named = (decision.delivery_id, decision.revision or 1)
        if decision.delivery_id and named in self._receipts:
            return replace(self._receipts[named], code="duplicate")
        # A gateway gives each answer a delivery id.
        decision = replace(decision, delivery_id=f"{decision.delivery_id}/{len(self.answers)}")
        before = self.request(authority.received_at or now)
        refused = machine.examine(before, decision, authority, now)
        if refused is not None:
            return refused
        vote = machine.vote_of(decision, authority, authority.received_at or now)
        after = before if asked is not None else machine.count_vote(before, vote)
        if asked is not None or after is not before:
            settles = asked is None and after.state != "pending"
            number = len(self.answers) + 1
            self.answers.append(StoredAnswer(decision.revision or 1, number, vote, now, settles))
        if asked is not None:
            asked = replace(asked, edit_delivery=decision.delivery_id)
            self.questions.append(asked)
            before, after = request_at(asked, (), now), self.request(vote.at)
        receipt = machine.receipt_after(before, after)
        if named[0]:
            self._receipts[named] = receipt
        return receipt

    def end(self, ending: Ending, now: datetime) -> None:
        self.questions[-1] = replace(self.questions[-1], ended_at=now, ended_as=ending)
