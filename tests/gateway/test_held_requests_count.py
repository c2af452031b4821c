import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from call_rig import CallRig, call_token, production_gateway
from gateway_login import bearer, token_of
from gateway_rig import GatewayRig
from polling import pauses

from signoff.gateway.auth import streams

JSON = {"content-type": "application/json"}


class Waiter:
    def __init__(self, rig: GatewayRig, method: str, path: str, secret: str, **more: Any) -> None:
        self._rig = rig
        self._request = (method, path)
        self._more = {**more, "headers": JSON | bearer(secret) | more.get("headers", {})}

    @property
    def streams(self) -> int:
        return int(self._rig.app.state.streams._open.total())

    async def send(self) -> httpx2.Response:
        return await self._rig.http.request(*self._request, **self._more)

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.send())
        for pause in pauses():
            if self.streams:
                break
            assert not task.done(), task.result().text
            await asyncio.sleep(pause)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def waiter_at(rig: GatewayRig, route: str) -> Waiter:
    coder = await call_token(rig, "coder")
    headers, key = JSON | bearer(coder), {"idempotency-key": uuid.uuid4().hex}
    if route == "hook":
        body: dict[str, Any] = {"hook_event_name": "PreToolUse", "session_id": str(uuid.uuid4()), "tool_name": "Bash"}
        body |= {"tool_input": {"command": "rm x"}, "tool_use_id": "toolu_1"}
        return Waiter(rig, "POST", "/v1/hooks/claude-code?hold=50", coder, json=body)
    if route == "AAP":
        wanted = {"tool": "refund", "arguments": {"order": "A7", "euro": 200}, "timeout": "1h"}
        made = await rig.http.post("/aap/coder/v1/requests", json=wanted, headers=headers | key)
        return Waiter(rig, "GET", f"/aap/coder/v1/requests/{made.json()['id']}?wait=30s", coder)
    proposal = {"tool": "refund", "args": {"order": "A7", "euro": 200}}
    call = (await rig.http.post("/v1/calls", json=proposal, headers=headers | key)).json()["id"]
    if route == "proposal":
        return Waiter(rig, "POST", "/v1/calls", coder, json=proposal | {"wait": 50}, headers=key)
    if route == "call":
        return Waiter(rig, "GET", f"/v1/calls/{call}?wait=50", coder)
    seen = (await rig.http.get(f"/v1/calls/{call}/events", headers=headers)).json()["next"]
    if route == "events of a call":
        return Waiter(rig, "GET", f"/v1/calls/{call}/events?wait=30&after={seen}", coder)
    return Waiter(rig, "GET", f"/v1/events?turn={call}&wait=30&after={seen}", await token_of(rig, "guest"))


ROUTES = {
    "call": '"state":"waiting"',
    "proposal": '"state":"waiting"',
    "events of a call": '"events":[]',
    "events": '"events":[]',
    "AAP": '"status":"pending"',
    "hook": "waiting for approval",
}
"""The answer of each route before an approver has answered."""


@pytest.mark.parametrize("route", ROUTES)
async def test_waiting_request_over_the_stream_limit_is_answered_at_once(
    agent: CallRig, monkeypatch: pytest.MonkeyPatch, route: str
) -> None:
    """Before the limit, one token held 1,101 requests."""
    rig = production_gateway(agent.rig)
    waiter = await waiter_at(rig, route)
    monkeypatch.setattr(streams, "STREAMS_OF_ONE", 1)
    # Long enough for a busy machine to ask twice within it.
    monkeypatch.setattr(streams, "_PAUSE_SECONDS", 600)
    async with waiter.held():
        first, again = await waiter.send(), await waiter.send()
        for answer in (first, again):
            assert answer.headers["retry-after"] == "600", answer.text
        assert first.status_code in (200, 201)
        assert ROUTES[route] in first.text
        assert again.status_code == 429 or "streams already" in again.text
        monkeypatch.setattr(streams, "_PAUSE_SECONDS", 0)
        assert ROUTES[route] in (await waiter.send()).text
        assert waiter.streams == 1
    assert waiter.streams == 0


async def test_withdrawal_over_the_stream_limit_still_happens(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = production_gateway(agent.rig)
    waiter = await waiter_at(rig, "call")
    monkeypatch.setattr(streams, "STREAMS_OF_ONE", 1)
    coder = bearer(await call_token(rig, "coder"))
    path = waiter._request[1].partition("?")[0]
    async with waiter.held():
        answer = await rig.http.request("DELETE", path, headers=JSON | coder)
        # Nothing is left to wait for if its turn has the withdrawal at once.
        assert (answer.status_code, answer.headers.get("retry-after", "1")) == (200, "1")
        assert "retry-after" in answer.headers or answer.json()["state"] == "denied"
    for pause in pauses():
        found = (await rig.http.get(path, headers=coder)).json()
        if found["state"] == "denied":
            break
        await asyncio.sleep(pause)
    assert found["source"] == "cancelled"
