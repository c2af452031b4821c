import dataclasses
from collections.abc import AsyncIterator

import httpx
import pytest
from gateway_desk import BASE, GatewayDesk, fresh

from signoff.client import Signoff
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.gateway.app import build_app


@pytest.fixture(scope="module")
async def nobody(gateway: GatewayDesk) -> AsyncIterator[httpx.AsyncClient]:
    """A gateway whose turns no worker takes."""
    desk = Signoff(gateway.desk.client, task_queue=f"nobody-{fresh()}")
    app = build_app(dataclasses.replace(gateway.deps, desk=desk))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE, timeout=60) as http:
        yield http


async def test_turns_and_answers_are_taken_while_no_worker_is_there(nobody: httpx.AsyncClient) -> None:
    """A start is 201 and a decision 202, stored in Temporal; what needs a worker says so in one sentence."""
    turn = fresh()
    started = await nobody.post("/v1/turns", json={"text": "pay", "actor": "desk", "turn": turn})
    assert started.status_code == 201
    approval = ApprovalKey(TurnKey("main", turn, turn), "c1.1").id
    body = {"verdict": "approved", "revision": 1, "digest": "0a1b2c3d"}
    answer = await nobody.post(f"/v1/approvals/{approval}/decide", json=body)
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")
    view = await nobody.get(f"/v1/turns/{turn}")
    assert (view.status_code, view.json()["code"]) == (503, "unavailable")
    page = await nobody.get(f"/turns/{turn}")
    assert page.status_code == 503
    assert "Nothing is lost" in page.text
