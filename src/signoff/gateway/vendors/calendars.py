"""Reads the calendars of people over HTTP, and keeps their absences.

An address is often a secret: no message contains it or its host.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import GuardedHttp
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import SignoffError
from signoff.contracts.person import Absence, Person
from signoff.gateway.vendors.calendar_process import find_away_apart
from signoff.keys.secret_references import is_reference
from signoff.keys.secrets import SecretProvider
from signoff.people.calendars import Span
from signoff.people.people_file import is_calendar
from signoff.registry.extras import missing_extra
from signoff.settings import Settings

MOST_BYTES: Final = 1_000_000
SECONDS: Final = 10.0
KEPT: Final = timedelta(hours=24)
"""How long the last good reading counts while reading fails."""
_AT_ONCE: Final = 4
_OK: Final = 200
NO_CALENDAR: Final = "its server sends no iCal file, or reading it takes too long"
_Key: TypeAlias = tuple[str, str, str]
"""Tenant, person and calendar."""
_PROBLEMS: Final = {
    "dns": "its host has no address",
    "address": "its address is invalid, lacks TLS or is outside the public internet; see SIGNOFF_CALENDAR_NETWORKS",
    "timeout": f"its server did not answer within {SECONDS:g} seconds",
    "too_long": f"it has more than {MOST_BYTES // 1_000_000} MB",
    "connection": "its server cannot be reached",
}


@dataclass(frozen=True)
class CalendarReading:
    """One calendar as read. With a `problem`, nothing could be read."""

    spans: tuple[Span, ...] = ()
    problem: str = ""


class Calendars:
    """Keeps the last good reading of each calendar, in memory."""

    def __init__(self) -> None:
        self._read: dict[_Key, tuple[datetime, tuple[Span, ...]]] = {}
        self._failing: set[_Key] = set()

    def keep(self, person: Person, reading: CalendarReading, now: datetime) -> bool:
        """Return whether the calendar began or ceased to fail."""
        key = _key(person)
        if not reading.problem:
            self._read[key] = (now, reading.spans)
        failed, fails = key in self._failing, reading.problem != ""
        (self._failing.add if fails else self._failing.discard)(key)
        return failed is not fails

    def forget_others(self, people: Iterable[Person]) -> None:
        """Forget the calendars of other people, and earlier ones."""
        known = {_key(each) for each in people}
        self._read = {key: reading for key, reading in self._read.items() if key in known}
        self._failing &= known

    def list_of(self, tenant: str, now: datetime) -> tuple[Absence, ...]:
        """Leaves out ended absences, and readings that are too old. An absence of a calendar names no other person."""
        return tuple(
            Absence(tenant=tenant, person=person, since=since, until=until, said_at=read_at)
            for (its, person, _), (read_at, spans) in self._read.items()
            if its == tenant and now < read_at + KEPT
            for since, until in spans
            if now < until
        )


@dataclass
class CalendarReader:
    """Reads calendars. Never raises."""

    http: GuardedHttp
    secrets: SecretProvider = field(repr=False)
    words: Sequence[str]

    async def read(self, person: Person, now: datetime) -> CalendarReading:
        try:
            return await self._read(person, now)
        except Exception as error:
            return CalendarReading(problem=reading_problem(error))

    async def _read(self, person: Person, now: datetime) -> CalendarReading:
        content = await download_calendar(self.http, self.secrets, person.calendar, person.tenant)
        zone = person.reach.timezone if person.reach else "UTC"
        spans = await find_away_apart(content, self.words, zone, now)
        if spans is None:
            raise NotRead(NO_CALENDAR)
        return CalendarReading(spans)


class NotRead(Exception):
    """Why a calendar or a rota cannot be read, without its address."""


def reading_problem(error: Exception) -> str:
    """Name no address."""
    if isinstance(error, NotRead):
        return str(error)
    if isinstance(error, NotDelivered):
        return _PROBLEMS.get(error.code, "it cannot be fetched")
    # Messages of other errors may contain the address.
    return f"it cannot be fetched: {type(error).__name__}"


async def download_calendar(http: GuardedHttp, secrets: SecretProvider, address: str, tenant: str) -> bytes:
    """Raises `NotRead`, `NotDelivered`."""
    if missing := missing_extra("calendar"):
        raise NotRead(missing)
    address = await read_reference(secrets, address, tenant, "address") if is_reference(address) else address.strip()
    if is_reference(address) or not is_calendar(address):
        raise NotRead("its address does not begin with `https://`")
    # Apple's name for the same.
    if address.startswith("webcal:"):
        address = f"https:{address.removeprefix('webcal:')}"
    return await download(http, address, {"accept": "text/calendar"})


async def read_reference(secrets: SecretProvider, reference: str, tenant: str, what: str) -> str:
    """Raises `NotRead`."""
    try:
        return (await secrets.read(reference, tenant=tenant)).strip()
    except SignoffError as error:
        raise NotRead(f"its {what} needs {error.message}") from None


async def download(http: GuardedHttp, address: str, headers: Mapping[str, str]) -> bytes:
    """Raises `NotRead`, `NotDelivered`."""
    answer = await http.get(address, {**headers, "accept-encoding": "identity"}, MOST_BYTES)
    if answer.status != _OK:
        raise NotRead(f"its server answers {answer.status}")
    return answer.body


def calendar_reader(settings: Settings, secrets: SecretProvider) -> CalendarReader:
    http = GuardedHttp(settings.calendar_networks, SECONDS)
    return CalendarReader(http, secrets, settings.calendar_words)


async def read_all(
    people: Iterable[Person], reader: CalendarReader, now: datetime
) -> Sequence[tuple[Person, CalendarReading]]:
    """Read a few at a time."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def read(person: Person) -> tuple[Person, CalendarReading]:
        async with places:
            return person, await reader.read(person, now)

    return await asyncio.gather(*map(read, people))


async def read_problems(
    people: Iterable[Person], settings: Settings, secrets: SecretProvider
) -> AsyncIterator[tuple[Person, str]]:
    reader = calendar_reader(settings, secrets)
    async with reader.http:
        for person, reading in await read_all(people, reader, system_clock()):
            if reading.problem:
                yield person, reading.problem


def _key(person: Person) -> _Key:
    return person.tenant, person.id, person.calendar
