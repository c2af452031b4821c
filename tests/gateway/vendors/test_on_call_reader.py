from datetime import UTC, datetime, timedelta
from typing import Any

from rota_servers import OPSGENIE_TOKEN, PAGERDUTY_TOKEN, RotaServer, rota_file
from tables import table

from signoff.channels.outbound_http import GuardedHttp, read_networks
from signoff.contracts.person import Person
from signoff.gateway.vendors.on_call import EVERY, MOST_NAMES, OnCallReader, on_call_problem
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import FixedDirectory
from signoff.people.on_call import KEPT, RotaReading, Shift
from signoff.registry.manifest.on_call_sections import OnCallRota, VendorSchedule
from signoff.testing.vendor_server import serve_vendor

NOW = datetime(2026, 9, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOME = read_networks(["127.0.0.0/8"])
PEOPLE = FixedDirectory([Person(id="ana", identities={"email": ("ana@example.com",)}), Person(id="ex", active=False)])


async def reading(rota: OnCallRota, networks: Any = HOME, **secrets: str) -> RotaReading:
    environment = {"PAGERDUTY": PAGERDUTY_TOKEN, "OPSGENIE": f"{OPSGENIE_TOKEN}\n", **secrets}
    reader = OnCallReader(GuardedHttp(networks, 10.0), SecretProvider(environment=environment))
    async with reader.http:
        return await reader.read(rota, NOW)


def pagerduty(url: str, schedule: str = "PI7DH85", token: str = "env:PAGERDUTY") -> OnCallRota:
    return OnCallRota("payments", pagerduty=VendorSchedule(schedule, token, url))


def opsgenie(url: str, schedule: str = "d875-4c", token: str = "env:OPSGENIE") -> OnCallRota:
    return OnCallRota("payments", opsgenie=VendorSchedule(schedule, token, f"{url}/"))


async def test_ical_file_names_attendees_and_titles() -> None:
    soon = NOW + KEPT / 2
    shifts = (("ana@example.com", NOW - HOUR, soon), ("Bo Berg", soon, NOW + 2 * HOUR))
    before, later = ("Cy", NOW - 2 * HOUR, NOW - HOUR), ("Di", NOW + KEPT, NOW + HOUR)
    server = RotaServer(rota_file(before, *shifts, later))
    async with serve_vendor(server.app()) as url:
        found = await reading(OnCallRota("payments", ical="env:ROTA"), ROTA=f"{url}/rota.ics")
    assert found == RotaReading(tuple(Shift(*each) for each in shifts))


async def test_pagerduty_names_the_users_of_its_schedule() -> None:
    entry = {"schedule": "PI7DH85", "email": "ana@example.com"}
    start, end = "2026-09-01T10:00:00+02:00", "2026-09-01T11:30:00+02:00"
    server = RotaServer()
    server.on_calls = [
        {**entry, "start": start, "end": end},
        {**entry, "start": start, "end": end},
        {**entry, "email": "bo@example.com"},
        {**entry, "schedule": "POTHER", "email": "cy@example.com"},
    ]
    async with serve_vendor(server.app()) as url:
        found = await reading(pagerduty(url))
    assert found.problem == ""
    assert set(found.shifts) == {
        Shift("ana@example.com", NOW - HOUR, NOW + HOUR / 2),
        Shift("bo@example.com", NOW - EVERY, NOW + KEPT),
    }
    query = dict(server.requests[0].query_params)
    assert (query["since"], query["until"]) == ("2026-09-01T08:59:00Z", "2026-09-01T09:05:00Z")


async def test_opsgenie_names_the_users_of_now() -> None:
    server = RotaServer(recipients=["ana@example.com", "bo@example.com"])
    async with serve_vendor(server.app()) as url:
        found = await reading(opsgenie(url))
    assert found == RotaReading(tuple(Shift(each, NOW - EVERY, NOW + KEPT) for each in server.recipients))


async def test_rota_that_cannot_be_read_is_named_without_its_secrets() -> None:
    server = RotaServer()
    async with serve_vendor(server.app()) as url:
        problems = [
            (await reading(rota, PAGERDUTY="other", OPSGENIE="other")).problem
            for rota in (pagerduty(url), opsgenie(url), opsgenie(url, token="env:NONE"))
        ]
        assert problems == [
            "its server answers 401",
            "its server answers 422",
            "its token needs the environment variable `NONE`, which is not set",
        ]
        assert (await reading(opsgenie(url, "d875-4c?x"))).problem == "its server answers 404"
        assert server.requests[-1].path_params["schedule"] == "d875-4c?x"
        server.more = True
        assert "more than 100 entries" in (await reading(pagerduty(url))).problem
        assert "outside the public internet" in (await reading(pagerduty(url), networks=())).problem
        server.content = b"<!doctype html>"
        assert "sends no iCal file" in (await reading(OnCallRota("payments", ical=f"{url}/rota.ics"))).problem


async def test_rota_of_too_many_people_is_unread() -> None:
    server = RotaServer(recipients=[f"p{number}@example.com" for number in range(MOST_NAMES + 1)])
    async with serve_vendor(server.app()) as url:
        assert await reading(opsgenie(url)) == RotaReading(problem="it names more than 50 people at one time")


@table(
    "entry",
    {"schedule": "PI7DH85", "email": None},
    {"schedule": "PI7DH85", "email": "ana@example.com", "start": "2026-09-01T10:00:00"},
    {"schedule": "PI7DH85", "email": "ana@example.com", "end": "soon"},
)
async def test_answer_of_another_form_is_no_rota(entry: dict[str, Any]) -> None:
    server = RotaServer(on_calls=[entry])
    async with serve_vendor(server.app()) as url:
        found = await reading(pagerduty(url))
    assert found == RotaReading(problem="its server sends something else than a rota")


@table(
    ("names", "problem"),
    (("ana@example.com",), ""),
    ((), "no person is on call now"),
    (("ex", "stranger@example.com"), "it names no active person now"),
)
def test_rota_without_a_known_person_is_a_problem(names: tuple[str, ...], problem: str) -> None:
    found = RotaReading(tuple(Shift(each, NOW - HOUR, NOW + HOUR) for each in names))
    assert on_call_problem(OnCallRota("payments"), found, PEOPLE, NOW) == problem
    assert on_call_problem(OnCallRota("payments"), found, PEOPLE, NOW + HOUR) == "no person is on call now"
