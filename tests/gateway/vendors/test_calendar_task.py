import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_login import as_person, browser, words
from gateway_rig import SIGNER, GatewayRig
from polling import until
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from tables import table

from signoff.audit.log import entry_writer
from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.contracts.person import Absence, ContactPreferences, Person
from signoff.formats.replace import replace
from signoff.gateway.absence_service import list_absences
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.vendors.calendar_process import find_away_apart
from signoff.gateway.vendors.calendar_task import CalendarTask, keep_calendars
from signoff.gateway.vendors.calendars import KEPT, MOST_BYTES, CalendarReader, Calendars, read_all
from signoff.keys.secrets import SecretProvider
from signoff.people.absences import sign_absence
from signoff.people.directory import FixedDirectory
from signoff.registry import extras
from signoff.settings import Settings
from signoff.store.questions.absences import Absences
from signoff.testing.vendor_server import serve_vendor

HOME = read_networks(["127.0.0.0/8"])
NOW = datetime(2026, 9, 1, 9, tzinfo=UTC)
ANA = Person(id="ana", name="Ana", calendar="env:ANA_CALENDAR", reach=ContactPreferences(timezone="Europe/Lisbon"))


def away_on(since: datetime, until_: datetime, title: str = "Out of office") -> bytes:
    lines = (
        *("BEGIN:VCALENDAR", "PRODID:-//Google Inc//Google Calendar 70.9054//EN", "VERSION:2.0", "BEGIN:VEVENT"),
        *(f"DTSTART:{since:%Y%m%dT%H%M%SZ}", f"DTEND:{until_:%Y%m%dT%H%M%SZ}", "UID:1@google.com"),
        *(f"SUMMARY:{title}", "TRANSP:OPAQUE", "END:VEVENT", "END:VCALENDAR", ""),
    )
    return "\r\n".join(lines).encode()


class Desk:
    """A server of calendars. `/slow` never answers, `/moved` redirects, `/long` has a byte too many."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.status = 200
        self.content = away_on(NOW, NOW + timedelta(days=1))

    async def take(self, request: Request) -> Response:
        self.requests.append(request)
        path = request.url.path
        if path == "/slow":
            await asyncio.Event().wait()
        if path == "/moved":
            return Response(status_code=302, headers={"location": "/ana.ics"})
        if path in ("/long", "/full"):
            return StreamingResponse(self._long(MOST_BYTES + (path == "/long")))
        return Response(self.content, self.status)

    async def _long(self, length: int) -> AsyncIterator[bytes]:
        yield self.content
        yield b" " * (length - len(self.content))

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.take, methods=["POST", "GET"])])


def reader_of(address: str, seconds: float = 10.0, networks: Any = HOME) -> CalendarReader:
    secrets = SecretProvider(environment={"ANA_CALENDAR": address})
    return CalendarReader(GuardedHttp(networks, seconds), secrets, Settings().calendar_words)


async def test_calendar_is_fetched_by_its_secret_address() -> None:
    desk = Desk()
    async with serve_vendor(desk.app()) as url:
        reader = reader_of(f"{url}/private-4711/basic.ics\n")
        async with reader.http:
            reading = await reader.read(ANA, NOW)
        assert reading.problem == ""
        assert reading.spans == ((NOW, NOW + timedelta(days=1)),)
        (request,) = desk.requests
        assert (request.method, request.url.path) == ("GET", "/private-4711/basic.ics")
        assert request.headers["accept-encoding"] == "identity"
        assert url not in repr((reader, reading))


@table(
    "path, problem",
    ("/moved", "its server answers 302"),
    ("/long", "it has more than 1 MB"),
    ("/slow", "its server did not answer within 10 seconds"),
)
async def test_calendar_that_cannot_be_read_is_named_without_its_address(path: str, problem: str) -> None:
    desk = Desk()
    async with serve_vendor(desk.app()) as url:
        reader = reader_of(url + path, seconds=0.3 if path == "/slow" else 10.0)
        async with reader.http:
            reading = await reader.read(ANA, NOW)
        assert (reading.problem, reading.spans) == (problem, ())
        assert len(desk.requests) == 1


async def test_calendar_of_one_megabyte_is_read() -> None:
    desk = Desk()
    async with serve_vendor(desk.app()) as url:
        reader = reader_of(f"{url}/full")
        async with reader.http:
            assert (await reader.read(ANA, NOW)).problem == ""


@table(
    "address, problem",
    ("https://127.0.0.1:9/a.ics", "is outside the public internet"),
    ("http://192.0.2.1/a.ics", "is outside the public internet"),
    ("https://[::1]:9/a.ics", "is outside the public internet"),
    ("webcal://10.0.0.1/a.ics", "is outside the public internet"),
    ("https://nothing.invalid/a.ics", "its host has no address"),
    ("ftp://example.com/a.ics", "its address does not begin with `https://`"),
    ("file:/etc/hostname", "its address does not begin with `https://`"),
    ("https://a:b:c/secret", "its address is invalid"),
    ("", "its address needs the environment variable `ANA_CALENDAR`, which is not set"),
)
async def test_private_and_impossible_addresses_are_refused(address: str, problem: str) -> None:
    reading = await reader_of(address, networks=()).read(ANA, NOW)
    assert problem in reading.problem
    assert "secret" not in reading.problem
    assert "example" not in reading.problem


async def test_page_in_place_of_a_calendar_is_a_problem() -> None:
    desk = Desk()
    desk.content = b"<!doctype html><title>Sign in</title>"
    async with serve_vendor(desk.app()) as url:
        reader = reader_of(f"{url}/ana.ics")
        async with reader.http:
            assert "sends no iCal file" in (await reader.read(ANA, NOW)).problem


async def test_missing_extra_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {**extras.EXTRAS, "calendar": ("no_such_module",)})
    assert "signoff[calendar]" in (await reader_of("https://example.com/a.ics").read(ANA, NOW)).problem


async def test_at_most_four_calendars_are_read_at_once() -> None:
    begun = asyncio.Semaphore(0)
    may_end = asyncio.Event()
    going, most = 0, 0

    class Slow(CalendarReader):
        async def read(self, person: Person, now: datetime) -> Any:
            nonlocal going, most
            going += 1
            most = max(most, going)
            begun.release()
            await may_end.wait()
            going -= 1
            return person.id

    people = [replace(ANA, id=f"p{number}") for number in range(9)]
    slow = Slow(GuardedHttp(), SecretProvider(), ())
    reading = asyncio.create_task(read_all(people, slow, NOW))
    for _ in range(4):
        await begun.acquire()
    may_end.set()
    assert len(await reading) == 9
    assert most == 4


async def from_calendars(deps: GatewayDeps, tenant: str) -> tuple[Absence, ...]:
    """Entered absences have a signature."""
    return tuple(each for each in await list_absences(deps, tenant) if each.signature == "")


def with_calendars(rig: GatewayRig, calendars: Mapping[str, str], clock: Any = None) -> GatewayRig:
    known = rig.deps.people.all()
    people = FixedDirectory([replace(each, calendar=calendars.get(each.id, "")) for each in known])
    changes: dict[str, Any] = {"people": people, "calendars": Calendars()}
    return rig.beside(**changes, **({"clock": clock} if clock else {}))


async def test_last_good_reading_counts_for_a_day_and_a_failure_is_logged_once(
    gateway: GatewayRig, caplog: pytest.LogCaptureFixture
) -> None:
    desk, moment = Desk(), [NOW]
    desk.content = away_on(NOW - timedelta(hours=1), NOW + timedelta(days=3))
    caplog.set_level(logging.INFO, "signoff.gateway.vendors.calendar_task")
    async with serve_vendor(desk.app()) as url:
        rig = with_calendars(gateway, {"ana": "env:ANA_CALENDAR"}, lambda: moment[0])
        task = CalendarTask(rig.deps, reader_of(f"{url}/private-4711/basic.ics"))
        await task.step()
        (absence,) = await from_calendars(rig.deps, "main")
        assert (absence.person, absence.to, absence.tools) == ("ana", "", ())
        assert absence.until == NOW + timedelta(days=3)
        assert await from_calendars(rig.deps, "other") == ()
        desk.status = 404
        for _ in range(2):
            moment[0] += timedelta(minutes=15)
            await task.step()
        assert len(await from_calendars(rig.deps, "main")) == 1
        said = [each.getMessage() for each in caplog.records]
        assert said == ["the calendar of `ana` cannot be read: its server answers 404"]
        moment[0] = NOW + KEPT
        assert await from_calendars(rig.deps, "main") == ()
        desk.status = 200
        await task.step()
        assert len(await from_calendars(rig.deps, "main")) == 1
        assert caplog.messages[-1] == "the calendar of `ana` can be read again"
        assert "4711" not in caplog.text
        await task._reader.http.close()


async def test_calendar_taken_from_a_person_is_forgotten(gateway: GatewayRig) -> None:
    desk = Desk()
    async with serve_vendor(desk.app()) as url:
        rig = with_calendars(gateway, {"ana": f"{url}/ana.ics"}, lambda: NOW)
        reader = reader_of("")
        async with reader.http:
            await CalendarTask(rig.deps, reader).step()
            assert len(await from_calendars(rig.deps, "main")) == 1
            later = with_calendars(rig, {}, lambda: NOW)
            deps = later.beside(calendars=rig.deps.calendars).deps
            await CalendarTask(deps, reader).step()
            assert await from_calendars(deps, "main") == ()


async def test_background_task_reads_and_the_card_says_away_until(gateway: GatewayRig) -> None:
    now = datetime.now(UTC)
    desk = Desk()
    desk.content = away_on(now - timedelta(hours=1), now + timedelta(days=2))
    approval = await gateway.asked("pay")
    async with serve_vendor(desk.app()) as url:
        rig = with_calendars(gateway, {"ana": f"{url}/ana.ics"})
        rig = rig.beside(settings=Settings(calendar_networks=HOME))
        async with keep_calendars(rig.deps):
            await until(lambda: bool(rig.deps.calendars.list_of("main", now)))
        async with browser(rig) as page:
            await as_person(page, "approver")
            card = words((await page.get(f"/approvals/{approval}")).text)
            assert card.count("Ana is away until") == 1
            assert "instead" not in card
            await as_person(page, "ana")
            # The form is for absences of one's own words. The calendar's stays in the list.
            form = words((await page.get("/away")).text)
            assert "I am back" not in form
            assert "Ana:" in form
            ends = now + timedelta(days=1)
            entered = Absence(tenant="main", person="ana", since=now, until=ends, to="approver", said_at=now)
            await Absences(rig.deps.store).put(sign_absence(entered, SIGNER), entry_writer([]))
            await as_person(page, "approver")
            card = words((await page.get(f"/approvals/{approval}")).text)
            assert card.count("Ana is away until") == 1
            assert "Ask Approver instead." in card
            assert await Absences(rig.deps.store).remove("main", "ana", entry_writer([]))


def in_zone(name: str, offset: str, rule: str = "") -> bytes:
    """A calendar that defines its own zone, and an absence in it."""
    second = ("BEGIN:DAYLIGHT", "DTSTART:19700101T000001", f"TZOFFSETFROM:{offset}", "TZOFFSETTO:+0200", rule)
    lines = (
        *("BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VTIMEZONE", f"TZID:{name}"),
        *("BEGIN:STANDARD", "DTSTART:19700101T000000", f"TZOFFSETFROM:{offset}", f"TZOFFSETTO:{offset}", rule),
        *("END:STANDARD", *((*second, "END:DAYLIGHT") if rule else ()), "END:VTIMEZONE"),
        *("BEGIN:VEVENT", "UID:1", f"DTSTART;TZID={name}:20260902T100000", f"DTEND;TZID={name}:20260902T110000"),
        *("SUMMARY:Out of office", "END:VEVENT", "END:VCALENDAR", ""),
    )
    return "\r\n".join(each for each in lines if each).encode()


async def test_calendar_that_takes_too_long_is_given_up() -> None:
    endless = in_zone("Every Second", "+0100", "RRULE:FREQ=SECONDLY")
    began = time.monotonic()
    assert await find_away_apart(endless, ["Out of office"], "UTC", NOW, seconds=4) is None
    assert time.monotonic() - began < 25
    many = away_on(NOW, NOW + timedelta(days=1)).replace(b"UID:", b"RRULE:FREQ=DAILY\r\n" * 20_000 + b"UID:")
    assert await find_away_apart(many, ["Out of office"], "UTC", NOW, seconds=4) is None


async def test_zone_of_one_calendar_changes_no_other() -> None:
    found = [
        await find_away_apart(in_zone("Customized Time Zone", offset), ["Out of office"], "UTC", NOW)
        for offset in ("-1200", "+0100")
    ]
    starts = [each[0][0] for each in found if each]
    assert len(starts) == len(set(starts)) == 2


@pytest.mark.parametrize("content", ["x", "BEGIN:VCALENDAR", "\x00" * 1_000])
async def test_process_returns_nothing_for_no_calendar(content: str) -> None:
    assert await find_away_apart(content.encode(), ["Away"], "Europe/Lisbon", NOW) is None
