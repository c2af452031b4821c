import logging

import httpx2
import pytest
from call_rig import CallRig, call_token, production_gateway, refusals
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import GatewayRig
from plugin_code import Install, routes

from signoff.contracts.limits import REQUEST_BODY_BYTES, STRANGER_BODY_BYTES
from signoff.gateway.app import build_app
from signoff.gateway.plugin_routes import plugin_problem
from signoff.plugins.loader import Plugins

CALL = {"tool": "refund", "args": {"order": "A7", "euro": 200}}
PATH = "/plugins/beeper"


@pytest.fixture
def beeper(agent: CallRig, install: Install) -> GatewayRig:
    return production_gateway(agent.rig, plugins=(install("acme-beeper", routes()),))


async def test_plugin_route_reaches_only_the_calls_of_its_tokens_agent(agent: CallRig, beeper: GatewayRig) -> None:
    coder, clerk = [bearer(await call_token(beeper, name)) for name in ("coder", "clerk")]
    asked = await beeper.http.post(f"{PATH}/calls", json=CALL, headers=coder)
    assert (asked.status_code, asked.json()["state"]) == (200, "waiting")
    path = f"{PATH}/calls/{asked.json()['id']}"
    assert (await beeper.http.get(path, headers=coder)).json() == {"state": "waiting"}
    assert (await beeper.http.get(path, headers=clerk)).status_code == 404
    await agent.decide(asked.json()["id"])
    assert (await beeper.http.get(path, headers=coder)).json() == {"state": "permitted"}


async def test_plugin_route_is_behind_sign_in_guard_and_body_limit(beeper: GatewayRig) -> None:
    coder, person = bearer(await call_token(beeper, "coder")), bearer(await token_of(beeper, "ana"))
    path = f"{PATH}/calls"

    async def post(path: str = path, **more: object) -> tuple[int, str]:
        answer = await beeper.http.post(path, **{"json": CALL, "headers": coder} | more)  # type: ignore[arg-type]
        return answer.status_code, answer.text if answer.text.startswith("beep") else answer.json()["code"]

    assert await post(headers={}) == (401, "beep unauthenticated")
    assert await post(headers=person) == (403, "beep scope")
    assert await post(headers=coder | {"origin": "https://evil.example"}) == (403, "cross_site")
    plain = coder | {"content-type": "text/plain"}
    assert await post(json=None, content=b"{}", headers=plain) == (415, "content_type")
    large = {
        "json": None,
        "content": b" " * (REQUEST_BODY_BYTES + 1),
        "headers": coder | {"content-type": "application/json"},
    }
    assert await post(**large) == (413, "too_large")
    large["content"] = b" " * (STRANGER_BODY_BYTES + 1)
    assert await post(f"{PATH}/open", **large) == (413, "too_large")
    assert await post(f"{PATH}/open", json={"a": 1, "b": "x"}) == (422, "beep malformed")
    assert await post(f"{PATH}/nothing") == (404, "unknown")


async def test_public_plugin_route_has_no_calls(beeper: GatewayRig) -> None:
    coder = bearer(await call_token(beeper, "coder"))
    answer = await beeper.http.post(f"{PATH}/escape", json={}, headers=coder)
    assert (answer.status_code, answer.text) == (403, "beep not_allowed")
    assert (await beeper.http.post(f"{PATH}/open", json={"a": 1})).json() == {"a": 1}


async def test_refusal_at_a_plugin_route_is_recorded(beeper: GatewayRig) -> None:
    coder = bearer(await call_token(beeper, "coder"))
    before = await refusals(beeper, "actor:coder", "")
    answer = await beeper.http.post(f"{PATH}/calls", json=CALL | {"user": "ana"}, headers=coder)
    assert (answer.status_code, answer.text) == (403, "beep not_allowed")
    [found] = (await refusals(beeper, "actor:coder", ""))[len(before) :]
    assert (found["code"], found["where"]) == ("not_allowed", f"POST {PATH}/calls")


async def test_failing_plugin_route_is_answered_without_its_error_text(beeper: GatewayRig) -> None:
    transport = httpx2.ASGITransport(app=beeper.app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=str(beeper.http.base_url)) as http:
        answer = await http.get(f"{PATH}/broken")
    assert (answer.status_code, answer.text) == (500, "beep internal")


async def test_plugin_with_an_invalid_route_function_is_left_out(
    agent: CallRig, install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    odd = routes("odd", "/plugins/odd").replace("body: CallBody", "body: object()")
    names = (install("odd-beeper", odd, name="odd"), install("acme-beeper", routes()), "gone:beeper")
    with caplog.at_level(logging.WARNING):
        rig = locked_rig(agent.rig, plugins=names)
    assert [each.getMessage().partition(":")[2].partition(":")[0] for each in caplog.records] == [
        "odd` is not loaded", "beeper` is not loaded"
    ]  # fmt: skip
    told = [plugin_problem(each) for each in Plugins(names).all()]
    assert told[0].startswith("its routes below `/plugins/odd` fail: AttributeError")
    assert (await rig.http.get("/plugins/odd/broken")).status_code == 404
    assert (await rig.http.post(f"{PATH}/open", json={"a": 1})).json() == {"a": 1}


async def test_unnamed_own_plugin_has_no_routes(agent: CallRig) -> None:
    rig = locked_rig(agent.rig, plugins=("telegram",))
    coder = bearer(await call_token(rig, "coder"))
    answer = await rig.http.post("/v1/hooks/codex", json={}, headers=coder)
    assert answer.status_code == 404
    assert all(not path.startswith("/v1/hooks") for path in build_app(rig.deps).openapi()["paths"])
