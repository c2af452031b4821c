import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_login import all_routes, bearer, locked_rig, token_of
from gateway_rig import GatewayRig
from starlette.requests import Request

from signoff.contracts.person import Person
from signoff.gateway.auth.dependencies import TokenAccess
from signoff.gateway.auth.streams import LOOK_AGAIN, Allowed, Streams
from signoff.gateway.transport.body_limit import READING
from signoff.plugins.a2a.agent_card import CARD_PATH
from signoff.plugins.authzen.plugin import CONFIGURATION
from signoff.plugins.mcp.plugin import RESOURCE
from signoff.store.tokens import Tokens

OPEN = (
    *("/healthz", "/readyz", "/openapi.json", "/logout", "/language"),
    *("/icon.svg", "/manifest.webmanifest", "/service-worker.js"),
)
SCHEMAS = "/v1/events/schemas"
"""Open without a token, like the sign-in, approval links and vendors' messages."""


@pytest.fixture
def locked(gateway: GatewayRig) -> GatewayRig:
    return locked_rig(gateway)


async def test_token_decides_as_its_person(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/decide"
    headers = bearer(await token_of(locked, "ana"))
    forged = await locked.http.post(f"{url}?as=approver", json={"verdict": "approved"}, headers=headers)
    assert (forged.status_code, forged.json()["code"]) == (403, "not_allowed")
    assert "is of `ana`" in forged.json()["message"]
    unread = await locked.http.post(url, json={"verdict": "denied"}, headers=headers)
    assert (unread.status_code, unread.json()["code"]) == (422, "malformed")
    assert "`question_hash`" in unread.json()["message"]
    shown = (await gateway.request(approval)).question_hash
    answer = await locked.http.post(url, json={"verdict": "denied", "question_hash": shown}, headers=headers)
    assert answer.json()["status"] == "accepted", answer.text
    decision = (await gateway.turns.signoff.request(approval)).votes[0].decision
    assert (decision.subject, decision.channel, decision.assurance) == ("ana", "api", "session")


async def test_token_is_checked_in_development_too(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/decide"
    wrong = await gateway.http.post(url, json={"verdict": "approved"}, headers=bearer("sgf_wrong"))
    assert wrong.status_code == 401
    guest = await gateway.http.post(url, json={"verdict": "approved"}, headers=bearer(await token_of(gateway, "guest")))
    assert (guest.status_code, guest.json()["code"]) == (403, "not_allowed")
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_turn_belongs_to_the_tokens_person(locked: GatewayRig) -> None:
    headers = bearer(await token_of(locked, "bo"))
    forged = await locked.http.post(
        "/v1/turns", json={"text": "pay", "actor": "desk", "user": "guest"}, headers=headers
    )
    assert (forged.status_code, forged.json()["code"]) == (403, "not_allowed")
    started = await locked.http.post("/v1/turns", json={"text": "hello", "actor": "desk"}, headers=headers)
    assert started.status_code == 201, started.text
    view = await locked.http.get(f"/v1/turns/{started.json()['id']}", headers=headers)
    assert view.json()["requester"]["user"] == "bo"


async def test_invalid_token_returns_401(locked: GatewayRig) -> None:
    now = datetime.now(UTC)
    tokens = Tokens(locked.deps.store)
    expired, _ = await tokens.create("main", "ana", ["read"], lifetime=timedelta(hours=1), now=now - timedelta(days=1))
    revoked, token = await tokens.create("main", "ana", ["read"], lifetime=timedelta(hours=1), now=now)
    await tokens.revoke(token.id, "main", now)
    good = await token_of(locked, "ana")
    sent = {
        "": "send a personal token",
        "Bearer": "not known",
        "Bearer ": "not known",
        "Bearer sgf_nonsense": "not known",
        f"Bearer {good}x": "not known",
        f"Bearer {good} {good}": "not known",
        f"Basic {good}": "send a personal token",
        good: "send a personal token",
        f"Bearer {expired}": "expired",
        f"Bearer {revoked}": "revoked",
        f"Bearer {await token_of(locked, 'gone')}": "not active",
        f"Bearer {await token_of(locked, 'nobody')}": "not in the directory",
        f"Bearer {await token_of(locked, 'ana', tenant='acme')}": "not in the directory",
    }
    for header, why in sent.items():
        answer = await locked.http.get("/v1/turns", headers={"authorization": header})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), header
        assert why in answer.json()["message"], header
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "sgf_" not in answer.text.replace("sgf_...", "")
        assert not answer.json()["message"].endswith(".") or answer.json()["message"].endswith("...`")
    assert (await locked.http.get("/v1/turns", headers=bearer(good))).status_code == 200


async def test_every_route_needs_a_sign_in(locked: GatewayRig) -> None:
    shut = 0
    for method, path in all_routes(locked):
        # Clients that look for an agent or for the sign-in have no token yet.
        shown = ("/login", "/link", "/channels/", SCHEMAS, RESOURCE, CONFIGURATION)
        if path in OPEN or path.startswith(shown) or path.endswith(CARD_PATH):
            continue
        body = {} if method in READING else {"headers": {"content-type": "application/json"}, "content": b"{}"}
        answer = await locked.http.request(method, path, **body)
        led_to_login = answer.status_code == 303 and answer.headers["location"].startswith("/login")
        assert answer.status_code == 401 or led_to_login, (method, path, answer.status_code)
        assert answer.status_code == 401 or not path.startswith(("/v1/", "/live/"))
        shut += 1
    assert shut > 25


@pytest.mark.parametrize(
    ("scope", "others"),
    [("read", ("decide", "start")), ("decide", ("read", "start")), ("start", ("read", "decide"))],
)
async def test_missing_scope_returns_403(
    gateway: GatewayRig, locked: GatewayRig, scope: str, others: tuple[str, str]
) -> None:
    approval = await gateway.asked("pay")
    turn = approval.rsplit(".", 2)[0]
    needs = {
        "read": [("GET", "/v1/turns"), ("GET", f"/v1/turns/{turn}"), ("GET", "/v1/approvals"), ("GET", "/v1/tools")],
        "decide": [
            ("POST", f"/v1/approvals/{approval}/{act}") for act in ("decide", "withdraw", "reassign", "add-approver")
        ],
        "start": [("POST", "/v1/turns"), ("POST", f"/v1/turns/{turn}/cancel")],
    }
    headers = bearer(await token_of(locked, "approver", *others)) | {"content-type": "application/json"}
    for method, path in needs[scope]:
        body = b"" if method == "GET" else b'{"verdict": "approved"}'
        answer = await locked.http.request(method, path, headers=headers, content=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "scope"), path
        assert f"needs the scope `{scope}`" in answer.json()["message"]
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_token_of_another_tenant_reaches_nothing(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    turn = approval.rsplit(".", 2)[0]
    headers = bearer(await token_of(locked, "zoe", tenant="acme"))
    for path in (f"/v1/approvals/{approval}", f"/v1/turns/{turn}", f"/v1/turns/{turn}/events", "/v1/turns?tenant=main"):
        assert (await locked.http.get(path, headers=headers)).status_code == 404, path
    assert (await locked.http.get("/v1/turns", headers=headers)).json() == {"turns": []}
    assert (await locked.http.get("/v1/approvals", headers=headers)).json() == {"approvals": []}
    answer = await locked.http.post(f"/v1/approvals/{approval}/decide", json={"verdict": "approved"}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown")
    assert (await locked.http.post(f"/v1/turns/{turn}/cancel", json={}, headers=headers)).status_code == 404
    start = {"text": "pay", "actor": "desk", "tenant": "main"}
    assert (await locked.http.post("/v1/turns", json=start, headers=headers)).status_code == 404
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_health_needs_no_sign_in(locked: GatewayRig) -> None:
    assert (await locked.http.get("/healthz")).status_code == 200
    assert (await locked.http.get("/readyz")).status_code == 200


async def test_description_names_the_token_and_scopes(locked: GatewayRig) -> None:
    described = (await locked.http.get("/openapi.json")).json()
    assert described["components"]["securitySchemes"]["personal token"]["scheme"] == "bearer"
    del described["paths"]["/healthz"]
    # Event schemas are public, and webhook receivers have no token.
    shut = {
        path: methods
        for path, methods in described["paths"].items()
        if not (path.startswith((SCHEMAS, RESOURCE, CONFIGURATION)) or path.endswith(CARD_PATH))
    }
    needed = {
        (method, path): route["security"][0]["personal token"]
        for path, methods in shut.items()
        for method, route in methods.items()
    }
    assert {scope for scopes in needed.values() for scope in scopes} == {"read", "start", "decide", "peer", "call"}
    assert needed["post", "/v1/turns/{turn}/cancel"] == ["start"]
    assert needed["delete", "/v1/grants/{grant}"] == ["decide"]


async def admitted(rig: GatewayRig, secret: str) -> Request:
    header = (b"authorization", f"Bearer {secret}".encode())
    scope = {"type": "http", "method": "GET", "path": "/v1/turns/x/events", "headers": [header], "app": rig.app}
    request = Request(scope)
    await TokenAccess("token", "read").admit(request)
    return request


def followed(
    rig: GatewayRig, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
) -> AsyncIterator[str]:
    streams: Streams = rig.app.state.streams
    body: AsyncIterator[Any] = aiter(streams.respond(request, events, allowed).body_iterator)
    return body


async def test_stream_ends_with_its_token(gateway: GatewayRig) -> None:
    now = [datetime.now(UTC)]
    locked = locked_rig(gateway, clock=lambda: now[0])
    tokens = Tokens(locked.deps.store)
    secret, token = await tokens.create("main", "ana", ["read"], lifetime=timedelta(days=1), now=now[0])
    request = await admitted(locked, secret)
    found = asyncio.Queue[str]()

    async def events() -> AsyncGenerator[str, None]:
        while event := await found.get():
            yield event

    stream = followed(locked, request, events())
    for event in ("first", "second"):
        found.put_nowait(event)
        assert await anext(stream) == event
        now[0] += LOOK_AGAIN
    await tokens.revoke(token.id, "main", now[0])
    found.put_nowait("third")
    assert [event async for event in stream] == []


async def test_stream_ends_when_its_reader_loses_access(gateway: GatewayRig) -> None:
    now = [datetime.now(UTC)]
    locked = locked_rig(gateway, clock=lambda: now[0])
    request = await admitted(locked, await token_of(locked, "ana"))
    concerned = [True]

    async def events() -> AsyncGenerator[str, None]:
        while True:
            yield "more"

    async def allowed(person: Person) -> bool:
        return person.id == "ana" and concerned[0]

    stream = followed(locked, request, events(), allowed)
    for _ in range(2):
        assert await anext(stream) == "more"
        now[0] += LOOK_AGAIN
    concerned[0] = False
    assert [event async for event in stream] == []
