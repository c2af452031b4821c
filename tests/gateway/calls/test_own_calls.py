from typing import Any

import pytest
from call_rig import CallRig, call_token, production_gateway
from gateway_rig import GatewayRig
from starlette.requests import Request

from signoff.contracts.errors import Refused
from signoff.contracts.requests import CallBody
from signoff.gateway.auth.dependencies import Access, TokenAccess
from signoff.gateway.calls.own_calls import OwnCalls

BODY = CallBody(tool="refund", args={"order": "A7", "euro": 200})


async def admitted(rig: GatewayRig, agent: str, access: Access = TokenAccess("token", "call")) -> Request:  # noqa: B008
    headers = [(b"authorization", f"Bearer {await call_token(rig, agent)}".encode())]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": headers, "app": rig.app}
    request = Request(scope)
    await access.admit(request)
    return request


async def test_call_handle_is_valid_for_its_own_request_only(agent: CallRig) -> None:
    rig = production_gateway(agent.rig)
    own, again = OwnCalls(await admitted(rig, "coder")), OwnCalls(await admitted(rig, "coder"))
    other = OwnCalls(await admitted(rig, "clerk"))
    call = await own.propose(BODY, key="own-calls-1")
    for stranger in (again, other):
        for act in (stranger.use(call), stranger.withdraw(call), stranger.wait(call, 0), stranger.arguments(call)):
            with pytest.raises(Refused, match="another caller's"):
                await act
    assert (await again.load(call.id)).id == call.id
    with pytest.raises(Refused, match="no call"):
        await other.load(call.id)


async def test_request_without_agent_access_has_no_calls(agent: CallRig) -> None:
    rig = production_gateway(agent.rig)
    with pytest.raises(Refused, match="open to every caller"):
        OwnCalls(await admitted(rig, "coder", Access()))


async def test_kept_value_is_private_to_its_agent(agent: CallRig) -> None:
    rig = production_gateway(agent.rig)
    own, other = OwnCalls(await admitted(rig, "coder")), OwnCalls(await admitted(rig, "clerk"))
    assert await own.keep("own-calls", "first") == ("first", True)
    assert await own.keep("own-calls", "second") == ("first", False)
    assert await other.kept("own-calls") is None
    await own.replace("own-calls", "x" * 1_000)
    assert await own.kept("own-calls") == "x" * 1_000
