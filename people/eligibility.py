"""Resolves whose answer a person may give to a request: their own, or that of somebody who delegated to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from signoff.contracts.approval import Question
from signoff.contracts.person import Person
from signoff.contracts.receipt import ReceiptCode
from signoff.people.directory import Directory


@dataclass(frozen=True)
class Seat:
    """Whose vote a person may cast."""

    on_behalf: str = ""
    """The id of the human for whom they vote; "" for themselves."""
    code: ReceiptCode = ""
    """Why they may not vote; "" when they may."""


@dataclass(frozen=True)
class Table:
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


def table_of(question: Question) -> Table:
    """Returns who is asked by a question, and who asks."""
    asked_by = question.requester.user
    return Table(question.tenant, question.approvers, asked_by, question.allow_self, question.proposers)


def seat_of(
    person: Person | None, people: Directory, table: Table, moment: datetime, taken: Sequence[str] = ()
) -> Seat:
    """Resolves whose vote a person may cast at `moment`: active, of the tenant, asked by id or role, or by delegation.

    Neither the person nor whoever delegated to them may be the requester, by whatever entry or login they asked. Of
    several delegators, one whose vote is not `taken` (ids of humans) is chosen.
    """
    if person is None or not _present(person, table):
        return Seat(code="not_allowed")
    # The requester may not decide in somebody else's seat either: who sits there would still be them.
    askers = {people.person_id(each, table.tenant) for each in (table.requester, *table.proposers)}
    own_matter = people.person_id(person.id, table.tenant) in askers and not table.allow_self
    # Whoever is asked themselves sits for themselves only: with a second seat one person would count twice.
    if _listed(person, table):
        return Seat(code="self_approval") if own_matter else Seat()
    lent = [
        people.person_id(each.id, table.tenant)
        for each in people.delegators(person.id, table.tenant, moment)
        if _present(each, table) and _listed(each, table)
    ]
    standing = [each for each in lent if table.allow_self or each not in askers]
    if not standing:
        return Seat(code="not_allowed")
    if own_matter:
        return Seat(code="self_approval")
    return Seat(on_behalf=next((each for each in standing if each not in taken), standing[0]))


def rights(person: Person, standing_in: Iterable[Person] = ()) -> tuple[str, ...]:
    """Returns the approver entries a person answers to, `user:<id>` and `role:<role>`: own ones, then those by
    delegation.
    """
    entries = [f"user:{person.id}", *(f"role:{role}" for role in person.roles)]
    # One hop: those whom they stand in for bring their own entries, and nobody's behind them.
    return tuple(dict.fromkeys([*entries, *(entry for each in standing_in for entry in rights(each))]))


def _present(person: Person, table: Table) -> bool:
    return person.active and person.tenant == table.tenant


def _listed(person: Person, table: Table) -> bool:
    return not set(rights(person)).isdisjoint(table.approvers)
