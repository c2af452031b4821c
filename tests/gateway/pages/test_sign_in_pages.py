import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from gateway_login import answered, bearer, browser, hidden, locked_rig, sign_in, token_of, words
from gateway_rig import BASE, PEOPLE, GatewayRig, http_of

from signoff.formats.replace import replace
from signoff.gateway.auth.browser_session import local_path
from signoff.gateway.auth.caller import SESSION
from signoff.store.browser_sessions import LIFETIME
from signoff.store.tokens import Scope, Tokens


@pytest.fixture
def locked(gateway: GatewayRig) -> GatewayRig:
    return locked_rig(gateway)


async def test_pasted_token_signs_in(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        led = await page.get(f"/approvals/{approval}")
        assert led.status_code == 303
        assert led.headers["location"] == f"/login?next=%2Fapprovals%2F{approval}"
        entered = await sign_in(page, await token_of(locked, "ana"), f"/approvals/{approval}")
        assert (entered.status_code, entered.headers["location"]) == (303, f"/approvals/{approval}")
        card = (await page.get(entered.headers["location"])).text
        assert "Signed in as Ana" in words(card)
        assert "Development mode" not in card
        await answered(page, approval, verdict="approved")
    decision = (await gateway.turns.signoff.request(approval)).votes[0].decision
    assert (decision.subject, decision.channel, decision.assurance) == ("ana", "inbox", "session")


async def test_session_cookie_is_protected_by_its_attributes(locked: GatewayRig) -> None:
    secure = locked_rig(locked, public_url="https://approvals.example.com")
    for rig, wanted in ((locked, False), (secure, True)):
        async with browser(rig) as page:
            page.base_url = "https://127.0.0.1:8300" if wanted else BASE
            entered = await sign_in(page, await token_of(rig, "ana"))
            cookie = entered.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=lax" in cookie
            assert ("secure" in cookie) == wanted
            assert f"max-age={int(LIFETIME.total_seconds())}" in cookie
            assert ("strict-transport-security" in entered.headers) == wanted


async def test_cookie_without_host_prefix_is_ignored_under_https(locked: GatewayRig) -> None:
    rig = locked_rig(locked, public_url="https://approvals.example.com")
    async with browser(rig) as page, browser(rig) as planted:
        for each in (page, planted):
            each.base_url = "https://127.0.0.1:8300"
        entered = await sign_in(page, await token_of(rig, "ana"))
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith(f"__Host-{SESSION}=")
        assert ("; Path=/;" in cookie, "domain" in cookie.lower()) == (True, False)
        assert (await page.get("/")).status_code == 200
        planted.cookies.set(SESSION, page.cookies[f"__Host-{SESSION}"])
        assert (await planted.get("/")).status_code == 303


async def test_cookie_from_before_the_sign_in_is_replaced(locked: GatewayRig) -> None:
    async with browser(locked) as page:
        await page.get("/login")
        planted = page.cookies[SESSION]
        await sign_in(page, await token_of(locked, "ana"))
        assert page.cookies[SESSION] != planted
        assert (await page.get("/")).status_code == 200
    async with browser(locked) as attacker:
        attacker.cookies.set(SESSION, planted)
        assert (await attacker.get("/")).status_code == 303


async def test_sign_in_needs_the_token_of_its_own_page(locked: GatewayRig) -> None:
    secret = await token_of(locked, "ana")
    async with browser(locked) as page, browser(locked) as other:
        theirs = hidden((await other.get("/login")).text, "/login")
        mine = hidden((await page.get("/login")).text, "/login")
        for form in ({}, {"token": ""}, theirs, {**mine, "token": "0" * 64}):
            answer = await page.post("/login", data={**form, "secret": secret})
            assert answer.status_code == 403
            assert "so you are not signed in" in words(answer.text)
        foreign = await page.post("/login", data={**mine, "secret": secret}, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
        assert (await page.get("/")).status_code == 303


async def test_invalid_token_does_not_sign_in(locked: GatewayRig) -> None:
    expired, _ = await Tokens(locked.deps.store).create(
        "main", "ana", ["read"], lifetime=timedelta(hours=1), now=datetime.now(UTC) - timedelta(days=1)
    )
    sent = {"sgf_nonsense": "not known", "": "not known", expired: "expired", await token_of(locked, "gone"): "active"}
    async with browser(locked) as page:
        for secret, why in sent.items():
            answer = await sign_in(page, secret)
            assert answer.status_code == 401
            assert why in words(answer.text)
            assert not secret or secret not in answer.text
        assert (await page.get("/")).status_code == 303


async def test_signing_out_ends_the_session(locked: GatewayRig) -> None:
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "ana"))
        copied = page.cookies[SESSION]
        home = (await page.get("/")).text
        assert (await page.post("/logout", data={"token": "x"})).status_code == 403
        left = await page.post("/logout", data=hidden(home, "/logout"))
        assert left.headers["location"] == "/login?out=1"
        assert SESSION not in page.cookies
        assert "You are signed out" in words((await page.get("/login?out=1")).text)
    async with browser(locked) as copy:
        copy.cookies.set(SESSION, copied)
        assert (await copy.get("/")).status_code == 303


async def test_session_expires(gateway: GatewayRig) -> None:
    now = [datetime.now(UTC)]
    locked = locked_rig(gateway, clock=lambda: now[0])
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "ana"))
        assert (await page.get("/")).status_code == 200
        now[0] += LIFETIME
        assert (await page.get("/")).status_code == 303
        assert (await page.get("/live/waiting")).status_code == 401
        secret, token = await Tokens(locked.deps.store).create(
            "main", "ana", ["read"], lifetime=timedelta(days=1), now=now[0]
        )
        await sign_in(page, secret)
        assert (await page.get("/")).status_code == 200
        await Tokens(locked.deps.store).revoke(token.id, "main", now[0])
        assert (await page.get("/")).status_code == 303


async def test_page_is_limited_to_its_tokens_scopes(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "ana", "read"))
        refused = await answered(page, approval, verdict="approved")
        assert refused.status_code == 403
        assert "needs the scope decide" in words(refused.text)
        new = hidden((await page.get("/new")).text, "/sessions")
        started = await page.post("/sessions", data={**new, "text": "pay", "actor": "desk"})
        assert started.status_code == 403
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_only_a_visitor_who_may_start_sees_the_new_turn_button(gateway: GatewayRig, locked: GatewayRig) -> None:
    scopes: dict[bool, tuple[Scope, ...]] = {False: ("read", "decide"), True: ("read", "start")}
    for is_offered, held in scopes.items():
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, "ana", *held))
            assert ('href="/new"' in (await page.get("/")).text) is is_offered
    async with browser(gateway) as page:
        offered = (await page.get("/")).text
    assert 'class="button ask" href="/new"' in offered
    assert "button primary ask" not in offered


async def test_session_cookie_does_not_open_the_api(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "ana"))
        answer = await page.post(f"/v1/approvals/{approval}/decide", json={"verdict": "approved"})
        assert answer.status_code == 401
        assert (await page.get("/v1/turns")).status_code == 401
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_signed_in_person_cannot_act_as_another(locked: GatewayRig) -> None:
    async with browser(locked) as page:
        page.cookies.set("signoff_person", "approver")
        await sign_in(page, await token_of(locked, "bo"))
        home = (await page.get("/")).text
        assert "Signed in as Bo" in words(home)
        assert 'action="/person"' not in home
        assert (await page.post("/person", data={"person": "ana"})).status_code == 403
        new = (await page.get("/new")).text
        assert 'name="user"' not in new
        form = hidden(new, "/sessions")
        sent = await page.post("/sessions", data={**form, "text": "hello", "actor": "desk", "user": "ana"})
        session = sent.headers["location"].removeprefix("/sessions/")
        headers = bearer(await token_of(locked, "bo", "read"))
        view = {"turns": []}
        while not view["turns"]:
            await asyncio.sleep(0.05)
            view = (await locked.http.get(f"/v1/sessions/{session}", headers=headers)).json()
        assert [turn["requester"] for turn in view["turns"]] == ["bo"]


async def test_pages_of_another_tenant_return_404(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    turn = approval.rsplit(".", 2)[0]
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "zoe", tenant="acme"))
        for path in (f"/approvals/{approval}", f"/turns/{turn}", f"/live/turns/{turn}"):
            assert (await page.get(path)).status_code == 404, path
        acts = (f"/approvals/{approval}/{act}" for act in ("decide", "withdraw", "assign"))
        for path in (*acts, f"/turns/{turn}/cancel"):
            assert (await page.post(path, data={"verdict": "approved"})).status_code == 404, path
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_development_profile_is_shown_on_every_page(gateway: GatewayRig) -> None:
    async with browser(gateway) as page:
        for path in ("/", "/new", "/turns", "/tools", "/tools/pay", "/login", "/nothing-here"):
            assert "Development mode: no sign-in" in words((await page.get(path)).text), path
        await sign_in(page, await token_of(gateway, "bo"))
        home = words((await page.get("/")).text)
        assert "Development mode: no sign-in" in home
        assert "Signed in as Bo" in home


async def test_answer_after_the_session_ended_is_reported_as_lost(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    async with browser(locked) as page:
        sent = await page.post(f"/approvals/{approval}/decide", data={"verdict": "approved"})
        assert sent.headers["location"] == f"/login?lost=1&next=%2Fapprovals%2F{approval}"
        shown = (await page.get(sent.headers["location"])).text
        assert "so nothing changed" in words(shown)
        back = hidden(shown, "/login")["next"]
        assert back == f"/approvals/{approval}"
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "javascript:alert(1)",
        "evil",
        "/\t/evil.example",
        "/login?next=/login",
        "",
        "/" + "x" * 600,
        "http://[",
    ],
)
async def test_sign_in_redirects_to_no_foreign_address(locked: GatewayRig, wanted: str) -> None:
    assert local_path(wanted) == "/"
    async with browser(locked) as page:
        assert (await sign_in(page, await token_of(locked, "ana"), wanted)).headers["location"] == "/"


def test_sign_in_redirects_to_local_pages() -> None:
    assert local_path("/approvals/main.a.b.c1.1?actor=desk") == "/approvals/main.a.b.c1.1?actor=desk"


async def test_sign_in_page_has_the_security_headers(locked: GatewayRig) -> None:
    async with browser(locked) as page:
        answer = await page.get("/login", headers={"origin": "https://evil.example"})
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_concurrent_sign_ins_get_their_own_sessions(locked: GatewayRig) -> None:
    people = ["ana", "bo", "guest", "approver"] * 3

    async def one(person: str) -> str:
        async with browser(locked) as page:
            await sign_in(page, await token_of(locked, person))
            return words((await page.get("/")).text)

    pages: list[str] = await asyncio.gather(*map(one, people))
    assert all(f"Signed in as {person.capitalize()}" in shown for person, shown in zip(people, pages, strict=True))


async def test_sign_in_redirect_keeps_the_requested_page(locked: GatewayRig) -> None:
    async with http_of(locked.app) as page:
        assert (await page.get("/turns?state=error")).headers["location"] == "/login?next=%2Fturns%3Fstate%3Derror"
        assert (await page.get("/")).headers["location"] == "/login"
        assert (await page.post("/sessions", data={"text": "x"})).headers["location"] == "/login?lost=1"


async def test_removed_person_loses_access_at_once(gateway: GatewayRig, locked: GatewayRig) -> None:
    secret = await token_of(locked, "ana")
    async with browser(locked) as page:
        await sign_in(page, secret)
        cookie = page.cookies[SESSION]
    for people in ([PEOPLE[0], replace(PEOPLE[2], active=False)], [PEOPLE[0]]):
        later = locked_rig(gateway, people=people)
        async with browser(later) as page:
            page.cookies.set(SESSION, cookie)
            assert (await page.get("/")).status_code == 303
        assert (await later.http.get("/v1/turns", headers=bearer(secret))).status_code == 401
