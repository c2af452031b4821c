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
    """The approver entries under which whoever's vote it is is asked."""


@dataclass(frozen=True)
class Seats:
    """Every vote that a person may cast, of which only one counts."""

    own: frozenset[str] | None = None
    """The approver entries under which they are asked themselves; None where they are not."""
    lent: Mapping[str, frozenset[str]] = field(default_factory=dict)
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


def approver_spec_of(question: Question) -> ApproverSpec:
    """Returns who is asked by a question, and who asks."""
    asked_by = question.requester.user
    return ApproverSpec(
        question.tenant,
        question.approvers,
        asked_by,
        question.allow_self,
        question.proposers,
        question.quorum,
        question.groups,
    )


def resolve_eligibility(
    person: Person | None,
    people: Directory,
    table: ApproverSpec,
    moment: datetime,
    taken: Sequence[str] = (),
    wanted: Collection[str] = (),
) -> Eligibility:
    """Resolves which of a person's votes an answer at `moment` counts as, or why none; see `seats_of`.

    Of several delegators, one whose vote is not `taken` (ids of humans) is chosen, and of those one who is asked under
    an entry that is still `wanted`.
    """
    found = seats_of(person, people, table, moment)
    if found.code:
        return Eligibility(code=found.code)
    if found.own is not None:
        return Eligibility(entries=found.own)
    free = [each for each in found.lent if each not in taken]
    useful = [each for each in free if not found.lent[each].isdisjoint(wanted)]
    chosen = next(iter((*useful, *free, *found.lent)))
    return Eligibility(on_behalf=chosen, entries=found.lent[chosen])


def seats_of(person: Person | None, people: Directory, table: ApproverSpec, moment: datetime) -> Seats:
    """Resolves whose votes a person may cast at `moment`: active, of the tenant, asked by id or role, or by delegation.

    Neither the person nor whoever delegated to them may be the requester, by whatever entry or login they asked.
    """
    if person is None or not _present(person, table):
        return Seats(code="not_allowed")
    # The requester may not decide in somebody else's seat either: who sits there would still be them.
    askers = {people.person_id(each, table.tenant) for each in (table.requester, *table.proposers)}
    own_matter = people.person_id(person.id, table.tenant) in askers and not table.allow_self
    # Whoever is asked themselves sits for themselves only: with a second seat one person would count twice.
    if entries := _entries(person, table):
        return Seats(code="self_approval") if own_matter else Seats(own=entries)
    lent: dict[str, frozenset[str]] = {}
    for each in people.delegators(person.id, table.tenant, moment):
        human = people.person_id(each.id, table.tenant)
        if _present(each, table) and (table.allow_self or human not in askers) and (entries := _entries(each, table)):
            # One human may lend by several entries of theirs; it is one seat all the same.
            lent[human] = lent.get(human, frozenset()) | entries
    if not lent:
        return Seats(code="not_allowed")
    return Seats(code="self_approval") if own_matter else Seats(lent=lent)


def rights(person: Person, standing_in: Iterable[Person] = ()) -> tuple[str, ...]:
    """Returns the approver entries a person answers to, `user:<id>` and `role:<role>`: own ones, then those by
    delegation.
    """
    entries = [f"user:{person.id}", *(f"role:{role}" for role in person.roles)]
    # One hop: those whom they stand in for bring their own entries, and nobody's behind them.
    return tuple(dict.fromkeys([*entries, *(entry for each in standing_in for entry in rights(each))]))


def _present(person: Person, table: ApproverSpec) -> bool:
    return person.active and person.tenant == table.tenant


def _entries(person: Person, table: ApproverSpec) -> frozenset[str]:
    return frozenset(rights(person)).intersection(table.approvers)
