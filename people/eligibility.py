"""Whose answer a person may give to a request: their own, or that of somebody they stand in for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from signoff.contracts.approval import Question
from signoff.contracts.person import Person
from signoff.contracts.receipt import ReceiptCode
from signoff.people.directory import Directory


@dataclass(frozen=True)
class Seat:
    """A person's own seat (""), or that of the human `on_behalf`; `code` is why they have none."""

    on_behalf: str = ""
    code: ReceiptCode = ""


@dataclass(frozen=True)
class Table:
    """Who is asked, `role:<role>` and `user:<id>`, in which tenant, and who asks, the requester and those who changed
    the arguments: they have no seat of their own unless `allow_self`."""

    tenant: str
    approvers: tuple[str, ...]
    requester: str
    allow_self: bool
    proposers: tuple[str, ...] = ()


def table_of(question: Question) -> Table:
    """The table of a question."""
    asked_by = question.requester.user
    return Table(question.tenant, question.approvers, asked_by, question.allow_self, question.proposers)


def seat_of(
    person: Person | None, people: Directory, table: Table, moment: datetime, taken: Sequence[str] = ()
) -> Seat:
    """The seat of a person at `moment`: active, of the tenant, on the list, in a role, or standing in for such a one.

    Neither who stands in nor who is stood in for may be the requester, by whatever entry or login they asked. Of
    several people somebody stands in for, one whose seat is not `taken` (ids of humans) is chosen.
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
    """The approver entries a person answers to, `user:<id>` and `role:<role>`: own ones, then those by delegation."""
    entries = [f"user:{person.id}", *(f"role:{role}" for role in person.roles)]
    # One hop: those whom they stand in for bring their own entries, and nobody's behind them.
    return tuple(dict.fromkeys([*entries, *(entry for each in standing_in for entry in rights(each))]))


def _present(person: Person, table: Table) -> bool:
    return person.active and person.tenant == table.tenant


def _listed(person: Person, table: Table) -> bool:
    return not set(rights(person)).isdisjoint(table.approvers)
