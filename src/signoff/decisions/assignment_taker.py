"""Accepts hand-ons and added approvers, in order with the decisions and under the same lock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from signoff.approvals import audit_events
from signoff.approvals.machine import (
    arrived_late,
    assignment_receipt,
    refusal,
    settled_receipt,
    stale_receipt,
    vote_of,
)
from signoff.approvals.quorum import Voter, added_entry, added_people, people_who_gave, suffices, with_added
from signoff.approvals.request_state import StoredAnswer, assigned_hash, editors_of
from signoff.audit.log import entry_writer
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.clock import Clock
from signoff.contracts.decision import ASSIGNING, Decision
from signoff.contracts.receipt import Receipt, ReceiptReason
from signoff.decisions.answer_taker import refuse, too_many
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, find_assignable, has_handed_on, resolve_voting_rights
from signoff.store.questions.answers import add_answer
from signoff.store.questions.approval_rows import ApprovalRows

_DOUBT = "the approvers of an unknown outcome cannot be changed"


@dataclass(frozen=True)
class Assigner:
    """The gateway's rules of eligibility, and its signing."""

    people: Directory
    author: Callable[[ApprovalRequest, Decision, datetime], Authority]
    """Finds the author and their permission to decide at the time of receipt."""
    sign: Callable[[Decision], Decision | Receipt]
    """Signs, or returns the receipt of a refusal."""


class AssignmentTaker:
    """Accepts hand-ons and added approvers within `Questions.run_locked`."""

    def __init__(self, clock: Clock, assigner: Assigner) -> None:
        self._clock = clock
        self._assigner = assigner

    def take_locked(self, connection: Connection, rows: ApprovalRows | None, decision: Decision) -> Receipt:
        """Insert a hand-on or an added approver of the latest question, or return the refusal."""
        if rows is None:
            return refuse("unknown", decision.approval_id)
        received = decision.received_at or self._clock()
        asked = rows.request(rows.latest, received)
        if any(each.vote.decision.delivery_id == decision.delivery_id for each in rows.answers):
            return assignment_receipt(asked, decision.verdict, "duplicate")
        if (decision.revision, decision.question_hash) != (asked.revision, asked.question_hash):
            return stale_receipt(asked)
        author = self._assigner.author(asked, decision, received)
        refused = self._refused(rows, asked, decision, author, received)
        if refused is not None:
            return refused
        people = self._assigner.people
        to, person = people.person_id(decision.to, asked.tenant), people.find(decision.to, asked.tenant)
        name = person.name if person is not None else ""
        assigned = assigned_hash(rows.answers)
        bound = replace(decision, to=to, to_name=name, received_at=received, assigned=assigned, on_call=author.on_call)
        signed = self._assigner.sign(bound)
        if isinstance(signed, Receipt):
            return signed
        vote = vote_of(signed, author, received)
        # Void: it is no vote, and its turn need not know of it.
        add_answer(connection, rows, vote, settles=False, handed=True, void=True)
        after = replace(asked, assignments=(*asked.assignments, vote))
        receipt = assignment_receipt(after, decision.verdict)
        entry_writer([audit_events.attempt_entry(vote.decision, receipt, self._clock(), author)])(connection)
        return receipt

    def _refused(
        self, rows: ApprovalRows, asked: ApprovalRequest, decision: Decision, author: Authority, received: datetime
    ) -> Receipt | None:
        if asked.state != "pending":
            return settled_receipt(asked)
        if arrived_late(asked, rows.now):
            return refusal(asked, "expired")
        if asked.kind != "approval":
            return refusal(asked, "malformed", _DOUBT)
        if not author.allowed:
            person = self._assigner.people.find(author.subject, asked.tenant)
            gave = person is not None and has_handed_on(asked, person, self._assigner.people)
            why: ReceiptReason = "handed_on" if gave else ""
            return refusal(asked, author.code or "not_allowed", why=why)
        editors, people = editors_of(rows.questions, rows.answers), self._assigner.people
        reason = assignment_problem(asked, rows.answers, decision, author, people, received, editors)
        return refusal(asked, "not_allowed", why=reason) if reason else too_many(rows, decision, author)


def assignment_problem(
    request: ApprovalRequest,
    answers: Sequence[StoredAnswer],
    decision: Decision,
    author: Authority,
    people: Directory,
    moment: datetime,
    editors: Sequence[str],
) -> ReceiptReason:
    """Return why an approver may not hand the request on, or not add that person, or "".

    `editors` edited any revision. The other person must be eligible by their own right, and must not have
    requested, edited or answered it.
    """
    tenant = request.tenant

    def human(name: str) -> str:
        return people.person_id(name, tenant)

    giver, taker = human(author.subject), human(decision.to)
    answered = {human(each) for each in _find_answerers(request, answers)}
    taken = {human(vote.decision.to) for vote in request.assignments}
    if decision.verdict == "handed_on":
        if giver in answered:
            return "answered"
        if giver in taken or author.on_behalf:
            return "further"
    asker = request.requester
    askers = (asker.user, asker.person_id, *request.proposers, *editors)
    added, gave = map(human, added_people(request.assignments)), map(human, people_who_gave(request.assignments))
    person = people.find(decision.to, tenant)
    if person is not None and taker == giver:
        return "to_self"
    if person is not None and taker in {human(each) for each in askers if each}:
        return "to_asker"
    if person is not None and taker in answered.union(added, gave):
        return "to_done"
    rights = resolve_voting_rights(person, people, approver_spec_of(request), moment)
    if rights.code or rights.own is None:
        return "to_stranger"
    if decision.verdict == "handed_on":
        if request.groups and not _shares_group(request, author, rights.own):
            return "to_stranger"
        if not _suffices_without(giver, request, people, moment):
            return "too_few"
    return ""


def _suffices_without(giver: str, request: ApprovalRequest, people: Directory, moment: datetime) -> bool:
    """Return whether the others can still approve the request together."""
    spec, tenant, added = approver_spec_of(request), request.tenant, added_people(request.assignments)
    entries: dict[str, frozenset[str]] = {}
    for each in find_assignable(request, people, moment):
        human = people.person_id(each.id, tenant)
        seat = {added_entry(human)} if human in added else set()
        own = resolve_voting_rights(each, people, spec, moment).own or frozenset()
        entries[human] = entries.get(human, frozenset()) | own | seat
    entries.pop(giver, None)
    voters = [Voter(human, {human: each}) for human, each in entries.items()]
    return suffices(*with_added(request.quorum, request.groups, added), voters)


def _find_answerers(request: ApprovalRequest, answers: Sequence[StoredAnswer]) -> set[str]:
    """Includes the author of an edit that the turn has not taken yet."""
    votes: list[Vote] = [*request.votes]
    votes += [each.vote for each in answers if each.revision == request.revision and not each.void]
    return {vote.subject for vote in votes if vote.verdict not in ASSIGNING}


def _shares_group(request: ApprovalRequest, author: Authority, entries: frozenset[str]) -> bool:
    own = frozenset(author.entries)
    return any(not own.isdisjoint(group.of) and not entries.isdisjoint(group.of) for group in request.groups)
