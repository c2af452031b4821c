"""Resolves whose answer a person may give to a request: their own, or that of somebody who delegated to them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from signoff.contracts.approval import ApproverGroup, Question
from signoff.contracts.person import Person
from signoff.contracts.receipt import ReceiptCode
from signoff.people.directory import Directory


@dataclass(frozen=True)
class Eligibility:
    """Whose vote a person may cast."""

    on_behalf: str = ""
    """The id of the human for whom they vote; "" for themselves."""
    code: ReceiptCode = ""
    """Why they may not vote; "" when they may."""
    entries: frozenset[str] = frozenset()
    """The approver entries under which the person is asked whose vote it is."""


@dataclass(frozen=True)
class VotingRights:
    """Every vote that a person may cast, of which only one counts."""

    own: frozenset[str] | None = None
    """The approver entries under which they are asked themselves; None where they are not."""
    delegated: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same of those who delegated to them, by the id of the human."""
    code: ReceiptCode = ""
    """Why they may cast none; "" when they may."""


@dataclass(frozen=True)
class ApproverSpec:
    """Who is asked, and who asks."""

    tenant: str
    """The tenant."""
    approvers: tuple[str, ...]
    """The approver entries that are asked: `role:<role>` and `user:<id>`."""
    requester: str
    """The id of whoever asks."""
    allow_self: bool
    """Whether requester and proposers may vote themselves."""
    proposers: tuple[str, ...] = ()
    """The ids of those who changed the arguments."""
    quorum: int = 1
    """How many different people have to approve."""
    groups: tuple[ApproverGroup, ...] = ()
    """The places they have to fill; empty: anybody who is asked fills any."""
    requester_person: str = ""
    """The id of the human behind `requester`, as it was known when they asked; "" for `requester` itself."""


def approver_spec_of(question: Question) -> ApproverSpec:
    """Reads the approvers and the requester of a question."""
    asked_by = question.requester.user
    return ApproverSpec(
        question.tenant,
        question.approvers,
        asked_by,
        question.allow_self,
        question.proposers,
        question.quorum,
        question.groups,
        question.requester.person_id,
    )


def resolve_eligibility(
    person: Person | None,
    people: Directory,
    spec: ApproverSpec,
    moment: datetime,
    taken: Sequence[str] = (),
    wanted: Collection[str] = (),
) -> Eligibility:
    """Resolves which of a person's votes an answer at `moment` counts as, or why none; see `resolve_voting_rights`.

    Of several delegators, one whose vote is not `taken` (ids of humans) is chosen, and of those one who is asked under
    an entry that is still `wanted`.
    """
    found = resolve_voting_rights(person, people, spec, moment)
    if found.code:
        return Eligibility(code=found.code)
    if found.own is not None:
        return Eligibility(entries=found.own)
    free = [each for each in found.delegated if each not in taken]
    useful = [each for each in free if not found.delegated[each].isdisjoint(wanted)]
    chosen = next(iter((*useful, *free, *found.delegated)))
    return Eligibility(on_behalf=chosen, entries=found.delegated[chosen])


def resolve_voting_rights(
    person: Person | None, people: Directory, spec: ApproverSpec, moment: datetime
) -> VotingRights:
    """Resolves whose votes a person may cast at `moment`: active, of the tenant, asked by id or role, or by delegation.

    Neither the person nor whoever delegated to them may be the requester, by whatever entry or login they asked.
    """
    if person is None or not _present(person, spec):
        return VotingRights(code="not_allowed")
    # The requester may not decide in somebody else's place either: it would still be them.
    asked_as = (spec.requester, *filter(None, (spec.requester_person,)), *spec.proposers)
    # As known now, and as known then: an account that was taken out of the directory since is not somebody else's.
    askers = {*asked_as, *(people.person_id(each, spec.tenant) for each in asked_as)}
    own_matter = people.person_id(person.id, spec.tenant) in askers and not spec.allow_self
    # Whoever is asked themselves votes for themselves only: with a second vote one person would count twice.
    if entries := _entries(person, spec):
        return VotingRights(code="self_approval") if own_matter else VotingRights(own=entries)
    delegated: dict[str, frozenset[str]] = {}
    for each in people.delegators(person.id, spec.tenant, moment):
        human = people.person_id(each.id, spec.tenant)
        if _present(each, spec) and (spec.allow_self or human not in askers) and (entries := _entries(each, spec)):
            # One human may delegate by several entries of theirs; it is one vote all the same.
            delegated[human] = delegated.get(human, frozenset()) | entries
    if not delegated:
        return VotingRights(code="not_allowed")
    return VotingRights(code="self_approval") if own_matter else VotingRights(delegated=delegated)


def rights(person: Person, standing_in: Iterable[Person] = ()) -> tuple[str, ...]:
    """Returns the approver entries a person answers to, `user:<id>` and `role:<role>`: own ones, then those by
    delegation.
    """
    entries = [f"user:{person.id}", *(f"role:{role}" for role in person.roles)]
    # One hop: those whom they stand in for bring their own entries, and nobody's behind them.
    return tuple(dict.fromkeys([*entries, *(entry for each in standing_in for entry in rights(each))]))


def _present(person: Person, spec: ApproverSpec) -> bool:
    return person.active and person.tenant == spec.tenant


def _entries(person: Person, spec: ApproverSpec) -> frozenset[str]:
    return frozenset(rights(person)).intersection(spec.approvers)
