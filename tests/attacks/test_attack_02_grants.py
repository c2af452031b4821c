"""Attack 02: what was remembered for one person's session serves somebody else, and is told to anybody."""

import uuid
from typing import Any

from attack_site import AttackSite, approval_id, payee, until

from signoff.contracts.ids import TurnKey


async def remembered(site: AttackSite, to: str) -> tuple[str, TurnKey]:
    """A session of Rui's in which Ana has approved all gifts to somebody in advance; the session and the turn."""
    rui, session = site.person("rui"), f"s{uuid.uuid4().hex[:12]}"
    key = await rui.ask([("gift", {"amount": 5, "to": to})], session=session)
    remember = {"scope": "session", "where": f"args.to == '{to}'", "uses": 10}
    assert (await site.person("ana").approve(approval_id(key), remember=remember))["status"] == "accepted"
    assert (await rui.result(key))["calls"][0]["code"] == "ok"
    return key.session, key


async def over_or_asked(site: AttackSite, key: TurnKey) -> None:
    """Return once a turn has ended, or waits for people."""

    async def look() -> Any:
        answer = await site.person("adm").http.get(f"/v1/turns/{'.'.join(key)}")
        view = answer.json() if answer.status_code == 200 else {}
        return view.get("result") or any(call.get("approval") for call in view.get("calls", ()))

    await until(look)


async def test_what_is_remembered_serves_its_own_session(site: AttackSite) -> None:
    # Rui's next gift in that session asks nobody. Without `write_agreed` in `DecisionWriter._take` the second gift
    # waited for people.
    to = payee()
    session, _ = await remembered(site, to)
    rui = site.person("rui")
    await rui.result(await rui.ask([("gift", {"amount": 6, "to": to})], session=session))
    assert site.amounts(to) == [5, 6]


async def test_a_turn_that_names_anothers_session_is_not_served(site: AttackSite) -> None:
    # Max starts a turn that names Rui's session: nothing that was remembered for Rui runs for him. With `own_session`
    # giving back every name as it is, and `_serves` comparing sessions alone, which stand one behind the other, 6 EUR
    # ran for Max.
    to, max_ = payee(), site.person("max")
    session, _ = await remembered(site, to)
    body = {"text": f'[[["gift", {{"amount": 6, "to": "{to}"}}]]]', "actor": "clerk", "session": session}
    answer = await max_.http.post("/v1/turns", json=body)
    if answer.status_code == 201:
        started = answer.json()
        await over_or_asked(site, TurnKey(started["tenant"], started["session"], started["turn"]))
    assert site.amounts(to) == [5]


async def test_a_taken_session_tells_nothing_of_itself(site: AttackSite) -> None:
    # A stranger who says something in Rui's session, by its name or its id, is answered as in one that nobody has. With
    # `own_session` giving back every name as it is, so that a session was the first one's who said something in it, Zoe
    # was answered 403 for the taken one alone.
    rui, zoe = site.person("rui"), site.person("zoe")
    taken = f"s{uuid.uuid4().hex[:12]}"
    response = await rui.say(taken, [])
    assert response.status_code in (201, 202)

    async def answered(name: str) -> tuple[int, str]:
        answer = await zoe.say(name, [])
        text, body = answer.text, answer.json()
        for field in ("session", "turn"):
            text = text.replace(body.get(field) or field, field)
        return answer.status_code, text

    for name in (taken, response.json()["session"]):
        free = f"s{uuid.uuid4().hex}"[: len(name)]
        assert await answered(name) == await answered(free)


async def test_grants_are_told_to_whom_they_concern_alone(site: AttackSite) -> None:
    # Neither the API nor the page tells a stranger of the grant or its session; whose it is, who asked and an
    # administrator see it. Seen to fail while everybody of the tenant was shown every grant.
    to = payee()
    session, key = await remembered(site, to)

    async def summary(name: str) -> tuple[bool, bool]:
        listed = await site.person(name).http.get("/v1/grants")
        page = await (await site.browser(name)).http.get("/grants")
        return session in listed.text, to in page.text

    seen = {name: await summary(name) for name in ("rui", "ana", "adm", "zoe", "max")}
    assert {name: any(seen[name]) for name in ("zoe", "max")} == {"zoe": False, "max": False}
    assert {name: seen[name][0] for name in ("rui", "ana", "adm")} == {"rui": True, "ana": True, "adm": True}
    assert key.session == session
