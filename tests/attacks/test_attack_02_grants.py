import uuid
from typing import Any

from attack_site import AttackSite, approval_id, payee, until

from signoff.contracts.ids import TurnKey


async def remembered(site: AttackSite, to: str) -> tuple[str, TurnKey]:
    rui, session = site.person("rui"), f"s{uuid.uuid4().hex[:12]}"
    key = await rui.ask([("gift", {"amount": 5, "to": to})], session=session)
    remember = {"scope": "session", "where": f"args.to == '{to}'", "uses": 10}
    assert (await site.person("ana").approve(approval_id(key), remember=remember))["status"] == "accepted"
    assert (await rui.result(key))["calls"][0]["code"] == "ok"
    return key.session, key


async def over_or_asked(site: AttackSite, key: TurnKey) -> None:
    async def look() -> Any:
        answer = await site.person("adm").http.get(f"/v1/turns/{'.'.join(key)}")
        view = answer.json() if answer.status_code == 200 else {}
        return view.get("result") or any(call.get("approval") for call in view.get("calls", ()))

    await until(look)


async def test_grant_serves_its_own_session(site: AttackSite) -> None:
    # Rui's next gift in that session asks no approver. Without `write_agreed_grant` in `DecisionService._remember`
    # the second gift waited for approvers.
    to = payee()
    session, _ = await remembered(site, to)
    rui = site.person("rui")
    await rui.result(await rui.ask([("gift", {"amount": 6, "to": to})], session=session))
    assert site.amounts(to) == [5, 6]


async def test_grant_does_not_serve_a_turn_naming_anothers_session(site: AttackSite) -> None:
    # Max starts a turn with the name of Rui's session: Rui's grants do not run it. With `own_session` returning every
    # name unchanged and `_serves` comparing only sessions (two layers of one defence), 6 EUR ran for Max.
    to, max_ = payee(), site.person("max")
    session, _ = await remembered(site, to)
    body = {"text": f'[[["gift", {{"amount": 6, "to": "{to}"}}]]]', "actor": "clerk", "session": session}
    answer = await max_.http.post("/v1/turns", json=body)
    if answer.status_code == 201:
        started = answer.json()
        await over_or_asked(site, TurnKey(started["tenant"], started["session"], started["turn"]))
    assert site.amounts(to) == [5]


async def test_taken_session_looks_like_a_free_one_to_strangers(site: AttackSite) -> None:
    # A stranger who writes to Rui's session by name or id gets the same answer as for a free one. With `own_session`
    # returning every name unchanged, a session belonged to its first speaker, and Zoe got 403 for the taken one only.
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


async def test_grants_are_shown_only_to_people_they_concern(site: AttackSite) -> None:
    # Neither the API nor the page shows a stranger the grant or its session. The grant's author, the requester and an
    # administrator see it. Without that check everyone in the tenant saw every grant.
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
