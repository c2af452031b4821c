import asyncio
import time
from typing import Any

from gateway_login import bearer, browser, locked_rig, sign_in, token_of, words
from gateway_rig import GatewayRig, fresh

from signoff.contracts.ids import SessionKey
from signoff.contracts.person import Person
from signoff.gateway.session_names import own_session


async def begun(rig: GatewayRig, text: str, **fields: Any) -> str:
    owner = Person(id=fields.get("user", "guest"))
    session = own_session(SessionKey("main", fresh()), owner, development=False).session
    response = await rig.http.post(f"/v1/sessions/{session}/messages", json={"text": text, "actor": "desk", **fields})
    assert response.status_code == 201, response.text
    return session


async def rows(rig: GatewayRig, of: str, until: int, **more: Any) -> list[dict[str, Any]]:
    late = time.monotonic() + 60
    while time.monotonic() < late:
        answer = await rig.http.get("/v1/sessions", params={"limit": 500}, **more)
        assert answer.status_code == 200, answer.text
        found = [row for row in answer.json()["sessions"] if row["session"] in of]
        if len(found) >= until:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{until} of `{of}` were never listed")


async def test_session_list_shows_requester_and_open_requests(rig: GatewayRig) -> None:
    quiet, asks = await begun(rig, "hello  there"), await begun(rig, "pay")
    while not (found := await rows(rig, f"{quiet} {asks}", 2))[0]["codes"]:
        await asyncio.sleep(0.05)
    assert [(row["session"], row["title"], row["requester"], len(row["codes"])) for row in found] == [
        (asks, "pay", "guest", 1),
        (quiet, "hello there", "guest", 0),
    ]
    assert found[0]["approvers"] == ["role:approvers"]
    async with browser(rig) as page:
        shown = await page.get("/sessions")
    assert f'href="/sessions/main.{asks}"' in shown.text
    assert "pay for Guest" in words(shown.text)
    assert "1 waiting" in words(shown.text)
    await rig.decide(found[0]["codes"][0], verdict="denied", **{"as": "approver"})
    while (await rows(rig, asks, 1))[0]["codes"]:
        await asyncio.sleep(0.05)


async def test_session_is_listed_for_its_readers_only(rig: GatewayRig) -> None:
    own, asks = await begun(rig, "hello", user="bo"), await begun(rig, "pay", user="guest")
    while not (await rows(rig, asks, 1))[0]["codes"]:
        await asyncio.sleep(0.05)
    await rows(rig, own, 1)
    locked = locked_rig(rig)
    seen = {}
    for person, tenant in (("bo", "main"), ("guest", "main"), ("approver", "main"), ("zoe", "acme")):
        secret = await token_of(locked, person, tenant=tenant)
        answer = await locked.http.get("/v1/sessions", params={"limit": 500}, headers=bearer(secret))
        listed = {row["session"] for row in answer.json()["sessions"]}
        seen[person] = [session in listed for session in (own, asks)]
        async with browser(locked) as page:
            await sign_in(page, secret)
            text = (await page.get("/sessions")).text
            assert [session in text for session in (own, asks)] == seen[person]
    assert seen == {"bo": [True, False], "guest": [False, True], "approver": [False, False], "zoe": [False, False]}
    other = await locked.http.get("/v1/sessions?tenant=acme", headers=bearer(await token_of(locked, "bo")))
    assert (other.status_code, other.json()["code"]) == (404, "unknown")
    assert (await locked.http.get("/v1/sessions")).status_code == 401


async def test_session_name_is_local_to_the_callers_tenant(rig: GatewayRig) -> None:
    tenant, session = fresh(), fresh()
    locked = locked_rig(rig, people=[Person(id="kim", tenant=tenant)])
    headers = bearer(await token_of(locked, "kim", tenant=tenant))
    path = f"/v1/sessions/{session}"
    response = await locked.http.post(f"{path}/messages", json={"text": "hello", "actor": "desk"}, headers=headers)
    assert (response.status_code, response.json()["tenant"]) == (201, tenant), response.text
    assert response.json()["session"].startswith(f"{session}-")
    assert (await locked.http.get(path, headers=headers)).json()["owner"] == "kim"
    other = await locked.http.get(f"/v1/sessions/main.{session}", headers=headers)
    assert other.status_code == 404
    started = await locked.http.post("/v1/turns", json={"text": "hello", "actor": "desk"}, headers=headers)
    view = await locked.http.get(f"/v1/turns/{started.json()['turn']}", headers=headers)
    assert (view.status_code, view.json()["tenant"]) == (200, tenant)
