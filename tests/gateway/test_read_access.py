import asyncio
import re
import uuid

import httpx2
import pytest
from gateway_login import STRANGER, bearer, browser, hidden, locked_rig, sign_in, token_of
from gateway_rig import PEOPLE, GatewayRig, turn_of
from tables import table

from signoff.contracts.ids import SessionKey, TurnKey
from signoff.contracts.person import Person
from signoff.contracts.responses import WaitingCard
from signoff.gateway.read_access import Audience, may_read, may_stop, of_row, reads_all
from signoff.gateway.session_names import own_session
from signoff.people.eligibility import rights

ADMIN = Person(id="ada", name="Ada", roles=("admin",))
AUDITOR = Person(id="aki", name="Aki", roles=("auditor",))
EVE = Person(id="eve", name="Eve", roles=("sales",))
EVERYBODY = (*PEOPLE, ADMIN, AUDITOR, EVE, STRANGER)
ABOUT = Audience("main", frozenset(("guest",)), frozenset(("role:finance", "user:cy")))
READ = ("guest", "ana", "ada", "aki")
"""Readers: requester, approver, operator and auditor."""


@pytest.fixture
async def locked(gateway: GatewayRig) -> GatewayRig:
    return locked_rig(gateway, people=EVERYBODY)


async def got(rig: GatewayRig, person: str, path: str, tenant: str = "main") -> httpx2.Response:
    headers = bearer(await token_of(rig, person, tenant=tenant))
    return await rig.http.get(path, headers=headers)


async def opened(rig: GatewayRig, person: str, path: str) -> httpx2.Response:
    async with browser(rig) as page:
        await sign_in(page, await token_of(rig, person))
        return await page.get(path)


def name_of(approval: str) -> str:
    return ".".join(turn_of(approval))


@table(
    ("person", "reads", "stops"),
    (Person(id="guest"), True, True),
    (Person(id="ana", roles=("finance",)), True, False),
    (Person(id="cy"), True, False),
    (ADMIN, True, True),
    (AUDITOR, True, False),
    (EVE, False, False),
    (Person(id="guest", tenant="acme"), False, False),
    (Person(id="ana", roles=("finance", "admin"), tenant="acme"), False, False),
    (Person(id="ana", roles=("finance",), active=False), False, False),
    (Person(id="ada", roles=("admin",), active=False), False, False),
)
def test_permission_to_read_and_stop_by_role(person: Person, reads: bool, stops: bool) -> None:
    assert may_read(person, rights(person), ABOUT, development=False) is reads
    assert may_stop(person, ABOUT, development=False) is stops
    assert may_read(person, (), ABOUT, development=True)
    assert may_stop(person, ABOUT, development=True)


def test_author_of_a_decision_reads_its_waiting_request() -> None:
    row = WaitingCard(
        id="main.s.t.c1.1", code="K7Q2FM", tenant="main", approvers=("role:finance",), answered_by=("cy",)
    )
    assert may_read(Person(id="cy"), rights(Person(id="cy")), of_row(row), development=False)
    assert not may_read(EVE, rights(EVE), of_row(row), development=False)


def test_turn_of_several_requesters_is_stopped_by_none_of_them_alone() -> None:
    both = Audience("main", frozenset(("guest", "ana")))
    assert not may_stop(Person(id="guest"), both, development=False)
    assert may_stop(ADMIN, both, development=False)


def test_delegate_may_read_the_delegators_turns() -> None:
    stands_in = rights(EVE, (Person(id="ana", roles=("finance",)),))
    assert may_read(EVE, stands_in, ABOUT, development=False)


@table("development", True, False)
def test_audit_log_readers_by_role_and_profile(development: bool) -> None:
    assert [reads_all(person, development=development) for person in (ADMIN, AUDITOR)] == [True, True]
    assert reads_all(EVE, development=development) is development


@pytest.mark.parametrize("path", ["/v1/turns/{turn}", "/v1/turns/{turn}/events", "/v1/approvals/{approval}"])
async def test_api_shows_a_turn_to_permitted_readers_only(locked: GatewayRig, gateway: GatewayRig, path: str) -> None:
    approval = await gateway.asked("pay")
    turn = name_of(approval)
    wanted = path.format(turn=turn, approval=approval)
    for person in ("eve", "bo"):
        refused = await got(locked, person, wanted)
        missing = await got(locked, person, wanted.replace(turn, "main.none.none"))
        assert (refused.status_code, missing.status_code) == (404, 404)
        result = missing.text.replace("main.none.none", turn).replace("main/none/none", turn.replace(".", "/"))
        assert refused.text == result
    await gateway.turns.signoff.cancel_turn(TurnKey(*turn.split(".")))
    for person in READ:
        assert (await got(locked, person, wanted)).status_code == 200, person


async def test_pages_show_a_turn_to_permitted_readers_only(locked: GatewayRig, gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    turn = name_of(approval)
    for path in (f"/turns/{turn}", f"/live/turns/{turn}", f"/approvals/{approval}", f"/approvals/{approval}?part=card"):
        assert (await opened(locked, "eve", path)).status_code == 404, path
    code = (await gateway.turns.signoff.request(approval)).code
    while (await opened(locked, "ana", f"/approvals/{code}")).status_code != 303:
        # The list of codes lags a little behind the turn.
        await asyncio.sleep(0.05)
    assert (await opened(locked, "eve", f"/approvals/{code}")).status_code == 404
    for person in READ:
        assert (await opened(locked, person, f"/turns/{turn}")).status_code == 200
        assert (await opened(locked, person, f"/approvals/{approval}")).status_code == 200


async def test_lists_contain_only_readable_items(locked: GatewayRig, gateway: GatewayRig, nothing_waits: None) -> None:
    approval = await gateway.asked("pay")
    own = await gateway.start("hello", user="bo")
    for _ in range(3):
        await gateway.start("hello")
    await gateway.turns.signoff.result(own)
    name, turn = ".".join(own), name_of(approval)

    def rows(answer: httpx2.Response) -> set[str]:
        return {f"{row['tenant']}.{row['session']}.{row['turn']}" for row in answer.json()["turns"]}

    async def until_listed() -> None:
        while name not in rows(await got(locked, "ada", "/v1/turns?limit=500")):
            await asyncio.sleep(0.05)

    await until_listed()
    assert rows(await got(locked, "bo", "/v1/turns?limit=1")) == {name}
    assert rows(await got(locked, "eve", "/v1/turns?limit=500")) == set()
    assert {name, turn} <= rows(await got(locked, "aki", "/v1/turns?limit=500"))
    assert name not in rows(await got(locked, "ana", "/v1/turns?limit=500"))
    assert f"/turns/{name}" in (await opened(locked, "bo", "/turns")).text
    assert f"/turns/{name}" not in (await opened(locked, "ana", "/turns")).text

    async def waits(person: str, query: str = "limit=1000") -> set[str]:
        return {card["id"] for card in (await got(locked, person, f"/v1/approvals?{query}")).json()["approvals"]}

    for person in READ:
        assert approval in await waits(person), person
    assert await waits("eve") == set()
    assert (await got(locked, "eve", "/v1/approvals?as=ana&limit=1000")).status_code == 403


async def test_requester_and_operator_may_stop_a_turn_over_the_api(locked: GatewayRig, gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/turns/{name_of(approval)}/cancel"

    async def stopped(person: str) -> int:
        headers = bearer(await token_of(locked, person))
        return (await locked.http.post(url, json={}, headers=headers)).status_code

    assert [await stopped(person) for person in ("eve", "ana", "aki")] == [404, 403, 403]
    assert (await gateway.turns.signoff.request(approval)).state == "pending"
    assert await stopped("guest") == 202
    other = name_of(await gateway.asked("pay"))
    url = f"/v1/turns/{other}/cancel"
    assert await stopped("ada") == 202


async def test_turn_page_offers_stop_to_the_requester_and_not_to_an_approver(
    locked: GatewayRig, gateway: GatewayRig
) -> None:
    approval = await gateway.asked("pay")
    turn = name_of(approval)
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "ana"))
        shown = await page.get(f"/turns/{turn}")
        assert f"/turns/{turn}/cancel" not in shown.text
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "guest"))
        form = hidden((await page.get(f"/turns/{turn}")).text, f"/turns/{turn}/cancel")
        assert (await page.post(f"/turns/{turn}/cancel", data=form)).status_code == 303


async def test_session_is_visible_to_permitted_readers_only(locked: GatewayRig, gateway: GatewayRig) -> None:
    named = SessionKey("main", f"s{uuid.uuid4().hex[:10]}")
    session = ".".join(own_session(named, Person(id="guest"), development=False))
    response = await gateway.http.post(f"/v1/sessions/{session}/messages", json={"text": "pay", "actor": "desk"})
    assert response.status_code == 201, response.text
    first = TurnKey(*session.split("."), response.json()["turn"])
    await gateway.turns.waiting(first)
    then = await gateway.http.post(f"/v1/sessions/{session}/messages", json={"text": "hello", "actor": "desk"})
    second = ".".join((session, then.json()["turn"]))
    assert (await got(locked, "ana", f"/v1/turns/{'.'.join(first)}")).status_code == 200
    shown = (await opened(locked, "ana", f"/turns/{'.'.join(first)}")).text
    assert f"/sessions/{session}" not in shown
    for person in ("eve", "bo", "ana"):
        for path in (f"/v1/sessions/{session}", f"/v1/turns/{second}"):
            assert (await got(locked, person, path)).status_code == 404
        for path in (f"/sessions/{session}", f"/live/sessions/{session}"):
            assert (await opened(locked, person, path)).status_code == 404
        late = {"turn": first.turn, "text": "it was paid"}
        headers = bearer(await token_of(locked, person))
        handed = await locked.http.post(f"/v1/sessions/{session}/results", json=late, headers=headers)
        assert handed.status_code == 404
    for person in sorted({*READ} - {"ana"}):
        assert (await got(locked, person, f"/v1/sessions/{session}")).status_code == 200, person
        assert (await got(locked, person, f"/v1/turns/{second}")).status_code == 200, person
        assert (await opened(locked, person, f"/sessions/{session}")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/turns", "/turns?person=ana", "/sessions", "/new", "/tools/pay"])
async def test_pages_name_no_other_person_to_a_stranger(locked: GatewayRig, path: str) -> None:
    """Without this check a stranger read all names and ids."""
    shown = (await opened(locked, "eve", path)).text
    options = re.findall(r'<option value="([^"]+)"', shown)
    assert {person.id for person in EVERYBODY}.intersection(options) <= {"eve"}


async def test_development_profile_shows_everything(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    assert (await gateway.http.get(f"/v1/turns/{name_of(approval)}")).status_code == 200
    gateway.http.cookies.set("signoff_person", "bo")
    page = await gateway.http.get(f"/turns/{name_of(approval)}")
    assert f"/turns/{name_of(approval)}/cancel" in page.text
    gateway.http.cookies.clear()
