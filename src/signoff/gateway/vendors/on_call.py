"""Reads from iCal files, PagerDuty and Opsgenie who is on call.

Addresses and tokens are secrets: no message contains them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from pydantic import AwareDatetime, BaseModel, ValidationError

from signoff.channels.outbound_http import GuardedHttp
from signoff.contracts.clock import Clock, system_clock
from signoff.formats.json_reader import NotJson, read_json
from signoff.gateway.vendors.calendar_process import find_shifts_apart
from signoff.gateway.vendors.calendars import (
    NO_CALENDAR,
    SECONDS,
    NotRead,
    download,
    download_calendar,
    read_reference,
    reading_problem,
)
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import Directory
from signoff.people.on_call import KEPT, RotaReading, Rotas, Shift, is_named
from signoff.registry.manifest.on_call_sections import OnCallRota, VendorSchedule
from signoff.settings import Settings

EVERY: Final = timedelta(minutes=1)
# PagerDuty's limit.
MOST_ENTRIES: Final = 100
MOST_NAMES: Final = 50
_AT_ONCE: Final = 4
_PAGERDUTY: Final = "https://api.pagerduty.com"
_OPSGENIE: Final = "https://api.opsgenie.com"
_M = TypeVar("_M", bound=BaseModel)


class _Schedule(BaseModel):
    id: str


class _User(BaseModel):
    email: str


class _OnCall(BaseModel):
    user: _User
    schedule: _Schedule | None = None
    start: AwareDatetime | None = None
    end: AwareDatetime | None = None


class _PagerDutyAnswer(BaseModel):
    oncalls: list[_OnCall]
    more: bool


class _Recipients(BaseModel):
    onCallRecipients: list[str]  # noqa: N815


class _OpsgenieAnswer(BaseModel):
    data: _Recipients


@dataclass
class OnCallReader:
    """Reads rotas. Never raises."""

    http: GuardedHttp
    secrets: SecretProvider = field(repr=False)

    async def read(self, rota: OnCallRota, now: datetime) -> RotaReading:
        # Judge an answer received right before a reading by this reading.
        since, until = now - EVERY, now + KEPT
        try:
            if rota.pagerduty is not None:
                shifts = await self._read_pagerduty(rota.pagerduty, rota.tenant, since, until)
            elif rota.opsgenie is not None:
                shifts = await self._read_opsgenie(rota.opsgenie, rota.tenant, since, until)
            else:
                shifts = await self._read_ical(rota, since, until)
            if len({each.name for each in shifts}) > MOST_NAMES:
                raise NotRead(f"it names more than {MOST_NAMES} people at one time")
        except Exception as error:
            return RotaReading(problem=reading_problem(error))
        return RotaReading(tuple(shifts))

    async def _read_ical(self, rota: OnCallRota, since: datetime, until: datetime) -> Sequence[Shift]:
        content = await download_calendar(self.http, self.secrets, rota.ical, rota.tenant)
        shifts = await find_shifts_apart(content, rota.timezone, since)
        if shifts is None:
            raise NotRead(NO_CALENDAR)
        # The reading counts no longer than until then.
        return [each for each in shifts if each.since < until]

    async def _read_pagerduty(
        self, schedule: VendorSchedule, tenant: str, since: datetime, until: datetime
    ) -> Sequence[Shift]:
        query = {
            "schedule_ids[]": schedule.schedule,
            # Otherwise users have no email address.
            "include[]": "users",
            "since": _iso(since),
            "until": _iso(until),
            "limit": MOST_ENTRIES,
        }
        address = f"{_base(schedule, _PAGERDUTY)}/oncalls?{urlencode(query)}"
        token = await read_reference(self.secrets, schedule.token, tenant, "token")
        headers = {"accept": "application/vnd.pagerduty+json;version=2", "authorization": f"Token token={token}"}
        answer = await self._ask(address, headers, _PagerDutyAnswer)
        if answer.more:
            raise NotRead(f"it has more than {MOST_ENTRIES} entries at one time")
        # A schedule of several escalation policies is listed with each of them.
        found = {
            Shift(each.user.email, (each.start or since).astimezone(UTC), (each.end or until).astimezone(UTC))
            for each in answer.oncalls
            if each.schedule is not None and each.schedule.id == schedule.schedule
        }
        return sorted(found)

    async def _read_opsgenie(
        self, schedule: VendorSchedule, tenant: str, since: datetime, until: datetime
    ) -> Sequence[Shift]:
        path = f"/v2/schedules/{quote(schedule.schedule, safe='')}/on-calls?flat=true"
        token = await read_reference(self.secrets, schedule.token, tenant, "token")
        headers = {"accept": "application/json", "authorization": f"GenieKey {token}"}
        answer = await self._ask(f"{_base(schedule, _OPSGENIE)}{path}", headers, _OpsgenieAnswer)
        # Opsgenie names the people of now, without an end.
        return [Shift(name, since, until) for name in answer.data.onCallRecipients]

    async def _ask(self, address: str, headers: Mapping[str, str], model: type[_M]) -> _M:
        content = await download(self.http, address, headers)
        try:
            return model.model_validate(read_json(content))
        except (NotJson, ValidationError):
            raise NotRead("its server sends something else than a rota") from None


def on_call_reader(settings: Settings, secrets: SecretProvider) -> OnCallReader:
    return OnCallReader(GuardedHttp(settings.calendar_networks, SECONDS), secrets)


async def read_rotas(
    rotas: Iterable[OnCallRota], reader: OnCallReader, kept: Rotas, clock: Clock
) -> Sequence[tuple[OnCallRota, RotaReading]]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def read(rota: OnCallRota) -> tuple[OnCallRota, RotaReading]:
        async with places:
            begun = clock()
            reading = await reader.read(rota, begun)
        # At once: a slow rota must not delay the others.
        if not reading.problem:
            kept.keep(rota.name, reading.shifts, begun)
        return rota, reading

    return await asyncio.gather(*map(read, rotas))


async def rota_problems(
    rotas: Iterable[OnCallRota], people: Directory, settings: Settings, secrets: SecretProvider
) -> AsyncIterator[tuple[OnCallRota, str]]:
    """Yield the rotas that give no approver now, with the reason."""
    reader = on_call_reader(settings, secrets)
    async with reader.http:
        for rota, reading in await read_rotas(rotas, reader, Rotas(), system_clock):
            if problem := reading.problem or on_call_problem(rota, reading, people, system_clock()):
                yield rota, problem


def on_call_problem(rota: OnCallRota, reading: RotaReading, people: Directory, now: datetime) -> str:
    names = {each.name for each in reading.shifts if each.since <= now < each.until}
    if any(each.active and is_named(each, names, people) for each in people.all(rota.tenant)):
        return ""
    return "it names no active person now" if names else "no person is on call now"


def _base(schedule: VendorSchedule, default: str) -> str:
    return (schedule.url or default).rstrip("/")


def _iso(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
