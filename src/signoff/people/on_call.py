"""Finds in rotas who is on call. Pure: the gateway reads the rotas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, runtime_checkable

from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.formats.mail_address import plain_address
from signoff.people.directory import EMAIL, Directory

ON_CALL: Final = "oncall:"
KEPT: Final = timedelta(minutes=5)
"""How long a reading counts."""


@runtime_checkable
class KnowsRotas(Protocol):
    """The gateway's directory also knows who is on call."""

    def on_call(self, person_id: str, tenant: str, moment: datetime) -> tuple[str, ...]:
        """Return `oncall:<rota>` for each rota that names the person at `moment` (aware)."""

    def has_unread(self, entries: Iterable[str], tenant: str, moment: datetime) -> bool:
        """Return whether some rota lacks a recent reading."""


def asks_rota(entries: Iterable[str]) -> bool:
    return any(each.startswith(ON_CALL) for each in entries)


def has_unread(people: Directory, entries: Iterable[str], tenant: str, moment: datetime) -> bool:
    return isinstance(people, KnowsRotas) and people.has_unread(entries, tenant, moment)


def find_on_call(people: Directory, person_id: str, tenant: str, moment: datetime) -> tuple[str, ...]:
    return people.on_call(person_id, tenant, moment) if isinstance(people, KnowsRotas) else ()


class Shift(NamedTuple):
    """A person's time on call."""

    name: str
    """Their email address, id or name."""
    since: datetime
    until: datetime
    """Exclusive."""


@dataclass(frozen=True)
class RotaReading:
    """One rota as read, or the `problem`."""

    shifts: tuple[Shift, ...] = ()
    problem: str = ""


class Rotas:
    """The last good reading of each rota."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[datetime, tuple[Shift, ...]]] = {}

    def keep(self, rota: str, shifts: tuple[Shift, ...], now: datetime) -> None:
        self._read[rota] = (now, shifts)

    def is_known(self, rota: str, moment: datetime) -> bool:
        return rota in self._read and moment < self._read[rota][0] + KEPT

    def names(self, rota: str, moment: datetime) -> frozenset[str]:
        """Empty without a recent reading."""
        shifts = self._read[rota][1] if self.is_known(rota, moment) else ()
        return frozenset(each.name for each in shifts if each.since <= moment < each.until)


class OnCallDirectory:
    """Adds rotas to a directory. `tenants` has the tenant of each."""

    def __init__(self, declared: Directory, rotas: Rotas, tenants: Mapping[str, str]) -> None:
        self.declared = declared
        self._rotas = rotas
        self._tenants = tenants

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        return self.declared.find(person_id, tenant)

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        return self.declared.all(tenant)

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        return self.declared.by_identity(channel, identity, tenant)

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        return self.declared.person_id(subject, tenant)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        return self.declared.delegators(person_id, tenant, now)

    def on_call(self, person_id: str, tenant: str, moment: datetime) -> tuple[str, ...]:
        person = self.declared.find(person_id, tenant)
        if person is None:
            return ()
        rotas = (rota for rota, its in self._tenants.items() if its == tenant)
        return tuple(
            f"{ON_CALL}{rota}" for rota in rotas if is_named(person, self._rotas.names(rota, moment), self.declared)
        )

    def has_unread(self, entries: Iterable[str], tenant: str, moment: datetime) -> bool:
        rotas = [each.removeprefix(ON_CALL) for each in entries if each.startswith(ON_CALL)]
        return any(self._tenants.get(each) == tenant and not self._rotas.is_known(each, moment) for each in rotas)


def is_named(person: Person, names: Iterable[str], people: Directory) -> bool:
    """Return whether one of `names` means this person alone, by email address, id or name."""
    return any(_is_name_of(name, person, people) for name in names)


def _is_name_of(name: str, person: Person, people: Directory) -> bool:
    if address := plain_address(name):
        return people.by_identity(EMAIL, address, person.tenant) == person
    if people.find(name, person.tenant) is not None:
        return name == person.id
    if not name or name.casefold() != person.name.casefold():
        return False
    # Two people of the same name: the rota does not say which of them.
    return sum(each.name.casefold() == name.casefold() for each in people.all(person.tenant)) == 1
