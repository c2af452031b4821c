import asyncio
from typing import Any

import httpx2
from gateway_login import bearer, browser, hidden, locked_rig, token_of, words
from gateway_rig import GatewayRig, fresh
from tables import table

from signoff.contracts.call import CallContext
from signoff.contracts.ids import SessionKey, TurnKey, is_id
from signoff.contracts.person import Person
from signoff.contracts.session_messages import turn_of
from signoff.formats.replace import replace
from signoff.gateway.session_names import is_own, own_session


async def _said(gateway: GatewayRig, session: str, text: str, **fields: Any) -> httpx2.Response:
    return await gateway.http.post(f"/v1/sessions/{session}/messages", json={"text": text, **fields})


async def _view(gateway: GatewayRig, session: str, *states: str) -> dict[str, Any]:
    while True:
        view: dict[str, Any] = (await gateway.http.get(f"/v1/sessions/{session}")).json()
        if [turn["state"] for turn in view.get("turns", ())] == list(states):
            return view
        await asyncio.sleep(0.05)


async def test_conversation_runs_over_the_api(gateway: GatewayRig) -> None:
    session = fresh()
    first = await _said(gateway, session, "pay", actor="desk", id="a")
    assert first.status_code == 201, first.text
    body = first.json()
    assert (body["status"], body["turn"], body["id"]) == ("accepted", "a", f"main.{session}")
    assert body["links"]["turn"] == f"/v1/turns/main.{session}.a"
    await _view(gateway, session, "waiting")
    second = await _said(gateway, f"main.{session}", "hello", id="b")
    assert second.status_code == 201
    view = await _view(gateway, session, "waiting", "complete")
    assert view["actor"] == "desk"
    assert view["turns"][1]["parts"][0]["content"]["inline"] == "You said: hello"
    approval = f"main.{session}.a.c1.1"
    assert (await gateway.decide(approval, verdict="approved")).status_code == 200
    view = await _view(gateway, session, "complete", "complete")
    assert view["turns"][0]["parts"][0]["content"]["inline"].startswith("pay: ok")
    assert await gateway.runs(approval) == 1


async def test_repeated_message_id_is_a_duplicate_and_with_other_text_a_conflict(gateway: GatewayRig) -> None:
    session = fresh()
    assert (await _said(gateway, session, "hello", actor="desk", id="a")).status_code == 201
    again = await _said(gateway, session, "hello", actor="desk", id="a")
    assert (again.status_code, again.json()["code"], again.json()["turn"]) == (200, "duplicate", "a")
    other = await _said(gateway, session, "good-bye", actor="desk", id="a")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    await _view(gateway, session, "complete")


async def test_late_result_starts_a_turn_over_the_api(gateway: GatewayRig) -> None:
    session = fresh()
    await _said(gateway, session, "hello", actor="desk", id="a")
    await _view(gateway, session, "complete")
    late = await gateway.http.post(f"/v1/sessions/{session}/results", json={"turn": "a", "text": "news", "id": "r"})
    assert (late.status_code, late.json()["turn"]) == (201, "a-2")
    view = await _view(gateway, session, "complete", "complete")
    assert view["turns"][1]["parts"][0]["content"]["inline"] == "You said: news"
    unknown = await gateway.http.post(f"/v1/sessions/{session}/results", json={"turn": "x", "text": "news"})
    assert unknown.status_code == 404


async def test_invalid_message_is_refused_with_its_field(gateway: GatewayRig) -> None:
    session = fresh()
    for fields, status, word in (
        ({"text": " "}, 422, "`text`"),
        ({"text": "x"}, 422, "`actor`"),
        ({"text": "x", "actor": "desc"}, 404, "did you mean `desk`"),
        ({"text": "x", "actor": "desk", "user": "nobody"}, 404, "nobody"),
        ({"text": "x", "actor": "desk", "id": "a.b"}, 422, "`id`"),
        ({"text": "x", "actor": "desk", "tier": "trusted"}, 422, "`tier`"),
        ({"text": "x", "actor": "desk", "context": {"n": 2**60}}, 422, "`context`"),
    ):
        answer = await gateway.http.post(f"/v1/sessions/{session}/messages", json=fields)
        assert (answer.status_code, word in answer.json()["message"]) == (status, True), answer.text
    # None of the refused messages has begun a session.
    assert (await gateway.http.get(f"/v1/sessions/{session}")).status_code == 404
    assert (await gateway.http.get("/v1/sessions/a.b.c")).status_code == 404
    assert (await _said(gateway, "a.b.c", "x")).status_code == 404


async def test_every_turn_of_a_message_has_a_signed_requester(gateway: GatewayRig) -> None:
    assert gateway.deps.signer is not None
    verifier = gateway.deps.signer.verifier()
    session = fresh()
    await _said(gateway, session, "hello", actor="desk", id="m")
    await _view(gateway, session, "complete")
    await gateway.http.post(f"/v1/sessions/{session}/results", json={"turn": "m", "text": "news"})
    await _view(gateway, session, "complete", "complete")
    first, second = TurnKey("main", session, "m"), TurnKey("main", session, turn_of("m", 2))
    asked = [
        CallContext(
            actor="desk", tenant=key.tenant, session=key.session, turn=key.turn, channel="api", user=view.requester
        )
        for key in (first, second)
        for view in [await gateway.deps.client.view(key)]
    ]
    assert [each.user.user for each in asked] == ["guest", "guest"]
    assert [verifier.check_principal(each) for each in asked] == [True, True]
    assert not verifier.check_principal(replace(asked[1], user=asked[0].user))
    assert len({each.user.nonce for each in asked}) == 2
    assert [bool(each.user.words) for each in asked] == [True, False]
    assert {each.user.store_id for each in asked} == {gateway.deps.store.id}


async def test_session_is_accessible_to_its_owner_only(gateway: GatewayRig) -> None:
    locked = locked_rig(gateway)
    name, hello = fresh(), {"text": "hello", "actor": "desk"}
    messages, results = f"/v1/sessions/{name}/messages", f"/v1/sessions/{name}/results"
    ana, bo = bearer(await token_of(locked, "ana")), bearer(await token_of(locked, "bo"))
    response = await locked.http.post(messages, json={**hello, "id": "a"}, headers=ana)
    assert response.status_code == 201
    session = response.json()["session"]
    await _view(gateway, session, "complete")
    late = {"turn": "a", "text": "give it to bo"}
    # Names are separate for each person, and another person's id counts as a name.
    answer = await locked.http.post(results, json=late, headers=bo)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown")
    begun = [
        (await locked.http.post(f"/v1/sessions/{each}/messages", json={**hello, "id": "a"}, headers=bo)).json()
        for each in (name, session)
    ]
    assert len({session, *(each["session"] for each in begun)}) == 3
    stranger = bearer(await token_of(locked, "zoe", tenant="acme"))
    for path in (f"/v1/sessions/{session}", f"/v1/sessions/main.{session}", f"/v1/sessions/main.{name}"):
        assert (await locked.http.get(path, headers=stranger)).status_code == 404
    reader = bearer(await token_of(locked, "ana", "read", "decide"))
    assert (await locked.http.post(messages, json=hello, headers=reader)).json()["code"] == "scope"
    assert (await locked.http.post(results, json=late, headers=ana)).status_code == 201
    view = await _view(gateway, session, "complete", "complete")
    assert [turn["requester"] for turn in view["turns"]] == ["ana", "ana"]
    assert view["owner"] == "ana"
    assert (await locked.http.get(f"/v1/sessions/{name}", headers=ana)).json()["session"] == session


@table("name", "s", "a" * 36, "a" * 37, "a" * 48, f"{'a' * 47}b")
def test_session_id_contains_its_owner(name: str) -> None:
    people, named = [Person(id="ana"), Person(id="bo")], SessionKey("main", name)
    ana, bo = [own_session(named, each, development=False) for each in people]
    assert all(map(is_id, (ana.session, bo.session)))
    assert [is_own(ana, "ana"), is_own(ana, "bo"), is_own(bo, "bo")] == [True, False, True]
    assert own_session(ana, people[0], development=False) == ana
    assert own_session(ana, people[1], development=False) not in (ana, bo)
    assert own_session(named, people[0], development=True) == own_session(named, None, development=False) == named


def test_two_long_names_of_one_person_make_two_sessions() -> None:
    names = [f"{'a' * 24}{each}{'a' * 22}" for each in "xy"]
    assert len({own_session(SessionKey("main", name), Person(id="ana"), development=False) for name in names}) == 2


async def _reads(page: httpx2.AsyncClient, path: str, *wanted: str) -> str:
    while True:
        answer = await page.get(path)
        page_text = words(answer.text)
        if all(each in page_text for each in wanted):
            return answer.text
        await asyncio.sleep(0.05)


async def test_session_page_takes_several_messages(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        form = hidden((await page.get("/new")).text, "/sessions")
        sent = await page.post("/sessions", data={**form, "text": "pay", "actor": "desk", "user": "guest"})
        assert sent.status_code == 303, sent.text
        path = sent.headers["location"]
        twice = await page.post("/sessions", data={**form, "text": "pay", "actor": "desk", "user": "guest"})
        assert twice.headers["location"] == path
        shown = await _reads(page, path, "Waiting for approvers", "Open the request")
        assert f'data-live-talk="/live{path}"' in shown
        more = hidden(shown, path)
        stale = await page.post(path, data={**more, "token": "x", "text": "hello"})
        assert stale.status_code == 403
        assert "hello</textarea>" in stale.text
        assert (await page.post(path, data={**more, "text": " "})).status_code == 422
        assert (await page.post(path, data={**more, "text": "hello"})).status_code == 303
        shown = await _reads(page, path, "You said: hello")
        turn = form["id"]
        approval = f"{path.removeprefix('/sessions/')}.{turn}.c1.1"
        assert f"/approvals/{approval}" in shown
        await gateway.decide(approval, verdict="denied", reason="no", **{"as": "ana"})
        shown = await _reads(page, path, "pay: denied")
        assert shown.index("pay: denied") < shown.index("You said: hello")
        alone = (await page.get(f"/turns/{path.removeprefix('/sessions/')}.{turn}")).text
        assert f'href="{path}"' in alone
        assert '<ol class="said"' in (await page.get(f"{path}?part=thread")).text


async def test_conversation_is_followed_live_and_can_be_stopped(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        form = hidden((await page.get("/new")).text, "/sessions")
        path = (await page.post("/sessions", data={**form, "text": "pay", "actor": "desk"})).headers["location"]
        shown = await _reads(page, path, "Waiting for approvers")
        stop = hidden(shown, f"{path}/cancel")
        assert (await page.post(f"{path}/cancel", data={"token": "x"})).status_code == 403
        assert (await page.post(f"{path}/cancel", data=stop)).status_code == 303
        shown = await _reads(page, path, "Cancelled")
        assert (await page.post(path, data={**hidden(shown, path), "text": "hello"})).status_code == 303
        await _reads(page, path, "You said: hello")
    assert (await gateway.http.get("/sessions/acme.x")).status_code == 404
    assert (await gateway.http.get("/live/sessions/acme.x")).status_code == 404
