"""A request as its row in the store, the answers to it and the clock make it: the one reading of what was decided."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from signoff.approvals import binding, deadlines, machine
from signoff.approvals.digest import question_hash
from signoff.contracts.approval import ApprovalRequest, Card, Question, Vote

NO_CARD = Card(effect="")
"""In place of a card where nobody looks at one."""


class StoredAnswer(NamedTuple):
    """One answer as it was taken, in the order of `number`, which counts from 1 within an approval.

    `answered_at` is the store's clock.
    """

    revision: int
    number: int
    vote: Vote
    answered_at: datetime


def request_of(question: Question, card: Card = NO_CARD) -> ApprovalRequest:
    """The request of a question as it was opened, before anybody answered."""
    fields = dict(question) | {"question_hash": question_hash(question), "card": card}
    request = ApprovalRequest(**fields)
    return request if question.opened_at is None else deadlines.opened(request, question.opened_at)


def request_at(
    question: Question, answers: Iterable[StoredAnswer], moment: datetime, card: Card = NO_CARD
) -> ApprovalRequest:
    """The request at `moment`: its answers counted in their order, each at its own time, then what time has brought.

    `answers` are those of the whole approval; an edit of the revision before is its author's yes to this one.
    """
    request = request_of(question, card)
    for answer in answers:
        if not _counts(question, answer):
            continue
        request = deadlines.advanced(request, answer.vote.at)
        if answer.revision != question.revision:
            edited = {"edited_by": answer.vote.subject, "edited_name": answer.vote.name}
            request = request.model_copy(update=edited)
        request = machine.counted(request, answer.vote)
    if question.ended_at is not None and question.ended_as == "unsigned":
        # What the raw message said only the turn knows; the answers taken before it stand as they are.
        return request
    if question.ended_at is not None and request.state in ("pending", "approved"):
        return _ended(request, question)
    return deadlines.advanced(request, moment)


def _counts(question: Question, answer: StoredAnswer) -> bool:
    changes = answer.vote.decision.edited_args is not None
    if answer.revision == question.revision:
        # A change of the arguments is no yes to those that were asked.
        return not changes
    # Whoever only proposed the change has not approved it; and others may have wanted other arguments than these.
    proposed = answer.vote.subject in question.proposers
    return changes and not proposed and binding.names(answer.vote.decision, question, "")


def _ended(request: ApprovalRequest, question: Question) -> ApprovalRequest:
    state = "lapsed" if request.state == "approved" else "cancelled"
    reason = _ENDINGS.get(question.ended_as or "", "")
    given: dict[str, Any] = {"state": state, "decided_at": question.ended_at}
    return request.model_copy(update=given if state == "lapsed" else given | {"reason": reason})


_ENDINGS: Mapping[str, str] = {
    "superseded": "This is asked again.",
    "cancelled": "The turn was stopped, or the question withdrawn.",
    "not_asked": "The turn asks this no longer.",
    "lapsed": "This is judged again.",
}
