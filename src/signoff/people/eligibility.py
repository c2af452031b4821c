"""Resolves whose vote a person may cast on a request: their own or a delegator's."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from signoff.approvals.deadlines import first_approvers
from signoff.approvals.quorum import people_who_gave
from signoff.contracts.approval import ApprovalRequest, Question, Terms
from signoff.contracts.person import Person
from signoff.contracts.receipt import ReceiptCode
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.people.on_call import asks_rota, find_on_call


@dataclass(frozen=True)
class Eligibility:
    """The vote that a person may cast."""

    on_behalf: str = ""
    """"" for the person's own vote."""
    code: ReceiptCode = ""
    """The reason why they may not vote, or ""."""
    entries: frozenset[str] = frozenset()
    """The approver entries of the vote's owner."""


@dataclass(frozen=True)
class VotingRights:
    """All votes that a person may cast. Only one counts."""

    own: frozenset[str] | None = None
    """`None` if the person is not asked."""
    delegated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the id of the delegator."""
    code: ReceiptCode = ""
    """The reason why they may cast none, or ""."""


@dataclass(frozen=True)
class ApproverSpec:
    """The approvers and the requester."""

    tenant: str
    terms: Terms
    requester: str
    allow_self: bool
    """Whether the requester and the proposers may vote."""
    proposers: tuple[str, ...] = ()
    """The ids of the editors of the arguments."""
    requester_person: str = ""
    """The id of the person behind `requester` at the time of the request.

    "" means `requester` itself.
    """
    gave: tuple[str, ...] = ()
    """The ids of the people who handed the request on."""


def approver_spec_of(question: Question) -> ApproverSpec:
    asked_by = question.requester.user
    gave = people_who_gave(question.assignments) if isinstance(question, ApprovalRequest) else ()
    return ApproverSpec(
        question.tenant,
        question.alone(),
        asked_by,
        question.allow_self,
        question.proposers,
        question.requester.person_id,
        gave,
    )


def resolve_eligibility(
    person: Person | None,
    people: Directory,
    spec: ApproverSpec,
    moment: datetime,
    taken: Sequence[str] = (),
    wanted: Collection[str] = (),
    on_call: Collection[str] | None = None,
) -> Eligibility:
    """Resolve the vote that a decision at `moment` casts, or why none.

    See `resolve_voting_rights`.

    With several delegators, prefers one whose vote is not `taken` (ids of people), and among these one with an entry
    still `wanted`.
    """
    votes = resolve_voting_rights(person, people, spec, moment, on_call)
    if votes.code:
        return Eligibility(code=votes.code)
    if votes.own is not None:
        return Eligibility(entries=votes.own)
    free = [each for each in votes.delegated if each not in taken]
    useful = [each for each in free if not votes.delegated[each].isdisjoint(wanted)]
    chosen = next(iter((*useful, *free, *votes.delegated)))
    return Eligibility(on_behalf=chosen, entries=votes.delegated[chosen])


def has_handed_on(request: ApprovalRequest, person: Person, people: Directory) -> bool:
    gave = {people.person_id(each, request.tenant) for each in people_who_gave(request.assignments)}
    return people.person_id(person.id, request.tenant) in gave


def find_assignable(request: ApprovalRequest, people: Directory, moment: datetime) -> tuple[Person, ...]:
    """Return the people who may decide the request by their own right, in the directory's order."""
    spec = approver_spec_of(request)
    return tuple(
        each for each in people.all(request.tenant) if resolve_voting_rights(each, people, spec, moment).own is not None
    )


def can_remember(request: ApprovalRequest, person: Person, people: Directory, now: datetime) -> bool:
    """True only for the first approvers of the policy.

    Approvers after an escalation are not asked about the next calls.
    """
    if not request.allow_remember or request.kind != "approval":
        return False
    first = approver_spec_of(replace(request, approvers=first_approvers(request)))
    # An answer for later calls would outlast a shift.
    return not resolve_eligibility(person, people, first, now, on_call=()).code


def resolve_voting_rights(
    person: Person | None,
    people: Directory,
    spec: ApproverSpec,
    moment: datetime,
    on_call: Collection[str] | None = None,
) -> VotingRights:
    """Resolve the votes that a person may cast at `moment`.

    The person must be active, in the tenant, and asked by id, role, rota or delegation. Neither they nor a delegator
    may be the requester, under any account or login, or have handed the request on. `on_call` are the person's proved
    entries of rotas. `None` asks `people`.
    """
    if person is None or not _present(person, spec):
        return VotingRights(code="not_allowed")
    gave = {people.person_id(each, spec.tenant) for each in spec.gave}
    if people.person_id(person.id, spec.tenant) in gave:
        return VotingRights(code="not_allowed")
    # The requester may not decide for others either: it would still be the same person.
    asked_as = (spec.requester, *filter(None, (spec.requester_person,)), *spec.proposers)
    # Use the ids of now and of then: an account removed from the directory since still belongs to its person.
    askers = {*asked_as, *(people.person_id(each, spec.tenant) for each in asked_as)}
    own_matter = people.person_id(person.id, spec.tenant) in askers and not spec.allow_self
    # A person who is asked themselves votes only for themselves: otherwise they would count twice.
    if on_call is None:
        asks = asks_rota(spec.terms.approvers)
        on_call = find_on_call(people, person.id, spec.tenant, moment) if asks else ()
    if entries := _entries(person, spec) | frozenset(on_call).intersection(spec.terms.approvers):
        return VotingRights(code="self_approval") if own_matter else VotingRights(own=entries)
    delegated: dict[str, frozenset[str]] = {}
    for each in people.delegators(person.id, spec.tenant, moment):
        human = people.person_id(each.id, spec.tenant)
        allowed = human not in gave and (spec.allow_self or human not in askers)
        if allowed and _present(each, spec) and (entries := _entries(each, spec)):
            # One person may delegate under several accounts. It is still one vote.
            delegated[human] = delegated.get(human, frozenset()) | entries
    if not delegated:
        return VotingRights(code="not_allowed")
    return VotingRights(code="self_approval") if own_matter else VotingRights(delegated=delegated)


def rights(person: Person, standing_in: Iterable[Person] = ()) -> tuple[str, ...]:
    """Return `user:<id>` and `role:<role>`, followed by the entries of `standing_in`."""
    entries = [f"user:{person.id}", *(f"role:{role}" for role in person.roles)]
    # Only one hop: delegators bring their own entries, but no entries of further delegators.
    return tuple(dict.fromkeys([*entries, *(entry for each in standing_in for entry in rights(each))]))


def _present(person: Person, spec: ApproverSpec) -> bool:
    return person.active and person.tenant == spec.tenant


def _entries(person: Person, spec: ApproverSpec) -> frozenset[str]:
    return frozenset(rights(person)).intersection(spec.terms.approvers)
