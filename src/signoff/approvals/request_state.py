"""Computes a request from its stored question, the decisions on it, and the clock.

Every reader of a request's state uses this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from signoff.approvals import binding, deadlines, machine
from signoff.approvals.digest import question_hash
from signoff.contracts.approval import ApprovalRequest, Card, Question, Vote
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.decision import ASSIGNING, Decision
from signoff.contracts.limits import UNDO_SECONDS
from signoff.formats.replace import replace

NO_CARD = Card(effect="")
"""Placeholder for a card that is not shown."""
ENDINGS: Final[Mapping[str, str]] = {
    "superseded": "A newer revision of this request is waiting.",
    "cancelled": "The turn was stopped, or the request was withdrawn.",
    "not_asked": "The turn no longer needs this approval.",
    "lapsed": "The policies judge the call again.",
}
"""Reasons for a request cancelled by its turn, by the question's end."""
_MARK: Final = "/undo/"
INBOX: Final = "inbox"
"""The channel of decisions in the inbox, the only ones that can be undone."""


class StoredAnswer(NamedTuple):
    """One decision as stored."""

    revision: int
    """The revision of the question that it answers."""
    number: int
    """Its number within its approval, from 1, in the order of storing."""
    vote: Vote
    answered_at: datetime
    """The time of storing, by the store's clock."""
    settles: bool = False
    """Whether it settled the question, which then waits for no further decision."""
    void: bool = False
    """Whether it does not count.

    That is an approval that its turn did not take, an undone denial, or the undo itself.
    """
    arrived_at: datetime | None = None
    """The time of arrival, by the store's clock, or `None` if unknown."""
    handed: bool = False
    """Whether its turn has it."""


def request_of(question: Question, card: Card = NO_CARD) -> ApprovalRequest:
    # Approvers alone see a preview, and many others read requests.
    preview = question.preview and replace(question.preview, parts=None)
    fields = dict(question) | {"question_hash": question_hash(question), "card": card, "preview": preview}
    request = ApprovalRequest(**fields)
    if question.opened_at is None:
        return request
    return deadlines.put_off(deadlines.open_request(request, question.opened_at), question.asked_at)


def request_at(
    question: Question, answers: Iterable[StoredAnswer], moment: datetime, card: Card = NO_CARD
) -> ApprovalRequest:
    """Decisions count in order, each at its own time, followed by timed events.

    `answers` contains those of the whole approval: an edit of the previous revision is its author's approval of this
    one.
    """
    request, taken = request_of(question, card), tuple(answers)
    for answer in taken:
        if answer.vote.verdict in ASSIGNING:
            request = _assign(request, question, answer)
            continue
        if not _counts(question, answer, taken):
            continue
        request = deadlines.advance(request, answer.vote.at)
        if answer.arrived_at is not None and machine.arrived_late(request, answer.arrived_at):
            continue
        if answer.revision != question.revision:
            request = replace(request, edited_by=answer.vote.subject, edited_name=answer.vote.name)
        request = machine.count_vote(request, answer.vote)
    if question.ended_at is None:
        return deadlines.advance(request, moment)
    if question.ended_as == "expired":
        request = deadlines.advance(request, question.ended_at)
    return _end(request, question) if request.state in ("pending", "approved") else request


def assigned_hash(answers: Iterable[StoredAnswer], before: int | None = None) -> str:
    """Hash the hand-ons and additions of an approval, by default all, else those before an answer's number.

    Each answer's signature covers this hash, so that a hidden hand-on or addition is noticed. "" without any.
    """
    made = [
        each.vote.decision.model_dump(mode="json", exclude_defaults=True)
        for each in answers
        if each.vote.verdict in ASSIGNING and (before is None or each.number < before)
    ]
    return sha256_hex(made) if made else ""


def editors_of(questions: Iterable[Question], answers: Iterable[StoredAnswer]) -> tuple[str, ...]:
    """Return the ids of the people whose edits made a revision."""
    made = {each.edit_delivery for each in questions if each.edit_delivery}
    return tuple(dict.fromkeys(each.vote.subject for each in answers if each.vote.decision.delivery_id in made))


def as_answerable(request: ApprovalRequest, editors: Iterable[str]) -> ApprovalRequest:
    """Return the terms of an answer instead of a run: never by the requester or an editor."""
    return replace(request, allow_self=False, proposers=(*request.proposers, *editors))


def edit_stands(answers: Iterable[StoredAnswer], revision: int, delivery: str) -> bool:
    """Return whether an edit may still replace `revision`.

    False if any decision, also a denial or a withdrawal, has settled it, or if the edit's author (identified by
    `delivery`) has decided again.
    """
    valid = [each for each in answers if each.revision == revision and not each.void]
    if any(each.settles for each in valid):
        return False
    own = next((each for each in valid if each.vote.decision.delivery_id == delivery), None)
    return own is None or not any(each.number > own.number and each.vote.subject == own.vote.subject for each in valid)


def pending_edits(question: Question, latest: Question, answers: Sequence[StoredAnswer]) -> list[StoredAnswer]:
    """Return the answers that edit `question` and may still replace it, in order.

    Only the edit that made `latest` if that has replaced `question`: a reset turn may have lost it.
    """
    edits = [
        each
        for each in answers
        if each.revision == question.revision and not each.void and each.vote.decision.edited_args is not None
    ]
    if latest.revision != question.revision:
        made = latest.edit_delivery if latest.edit_of == question.revision else ""
        return [each for each in edits if made and each.vote.decision.delivery_id == made]
    return [each for each in edits if edit_stands(answers, each.revision, each.vote.decision.delivery_id)]


def with_browser(decision: Decision, browser: str) -> Decision:
    """Note in a denial's delivery id the browser session that may undo it.

    Other decisions do not change. A remembered denial affects other calls at once, so it cannot be undone.
    """
    if not browser or decision.verdict != "denied" or decision.remember is not None:
        return decision
    return replace(decision, delivery_id=f"{decision.delivery_id}{_MARK}{browser}")


def browser_of(decision: Decision) -> str:
    if decision.verdict != "denied" or decision.channel != INBOX or decision.remember is not None:
        return ""
    return decision.delivery_id.rpartition(_MARK)[2] if _MARK in decision.delivery_id else ""


def is_held(decision: Decision) -> bool:
    """Return whether the turn learns of a new decision only after the time to undo it."""
    return UNDO_SECONDS > 0 and browser_of(decision) != ""


def undo_seconds(answers: Iterable[StoredAnswer], now: datetime) -> float:
    """Return the seconds until none of `answers` can be undone. `now` is the store's clock."""
    return max((_seconds_left(each, now) for each in answers), default=0.0)


def find_denial(answers: Iterable[StoredAnswer], person: str, browser: str) -> StoredAnswer | None:
    """Return the person's newest denial in this browser session, undone or not."""
    own = [each for each in answers if each.vote.decision.subject == person and _is_of(each, browser)]
    return own[-1] if own else None


def _assign(request: ApprovalRequest, question: Question, answer: StoredAnswer) -> ApprovalRequest:
    """A hand-on concerns one revision, an added approver also the later ones."""
    if answer.revision == question.revision:
        request = deadlines.advance(request, answer.vote.at)
    elif answer.vote.verdict != "added" or answer.revision > question.revision:
        return request
    if request.state != "pending":
        return request
    return replace(request, assignments=(*request.assignments, answer.vote))


def _counts(question: Question, answer: StoredAnswer, answers: Iterable[StoredAnswer]) -> bool:
    decision = answer.vote.decision
    if answer.void:
        return False
    if answer.revision == question.revision:
        # An edit does not approve the arguments that were asked about.
        return decision.edited_args is None
    # A person who only proposed the edit has not approved it. If several proposed the same edit, only one was taken.
    if decision.edited_args is None or answer.vote.subject in question.proposers:
        return False
    made = bool(question.edit_delivery) and decision.delivery_id == question.edit_delivery
    return (
        made
        and binding.is_answer_to(decision, question, "")
        and edit_stands(answers, answer.revision, decision.delivery_id)
    )


def _end(request: ApprovalRequest, question: Question) -> ApprovalRequest:
    if request.state == "approved":
        return replace(request, state="lapsed", decided_at=question.ended_at)
    if question.ended_as == "expired":
        return replace(request, state="timed_out", decided_at=question.ended_at)
    reason = ENDINGS.get(question.ended_as or "", "")
    return replace(request, state="cancelled", decided_at=question.ended_at, reason=reason)


def _is_of(answer: StoredAnswer, browser: str) -> bool:
    return browser != "" and browser_of(answer.vote.decision) == browser


def _seconds_left(answer: StoredAnswer, now: datetime) -> float:
    if answer.void or answer.handed or not is_held(answer.vote.decision):
        return 0.0
    return max((answer.answered_at + timedelta(seconds=UNDO_SECONDS) - now).total_seconds(), 0.0)
