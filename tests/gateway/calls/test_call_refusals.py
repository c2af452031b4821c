import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from call_rig import CallRig, call_token, production_gateway, refusals
from gateway_login import bearer, token_of
from gateway_rig import GatewayRig

from signoff.contracts.limits import ATTEMPTS_A_MINUTE

REFUND: dict[str, Any] = {"tool": "refund", "args": {"order": "A7", "euro": 20}}


async def code_of(rig: GatewayRig, secret: str, method: str, path: str, body: Any = None, key: str = "") -> str:
    headers = bearer(secret) | ({"idempotency-key": key} if key else {})
    answer = await rig.http.request(method, path, json=body, headers=headers)
    assert 400 <= answer.status_code < 500, answer.text
    return str(answer.json()["code"])


@pytest.mark.row("C15")
async def test_each_api_refusal_is_recorded_under_its_agent(agent: CallRig) -> None:
    rig, secret = production_gateway(agent.rig), await call_token(agent.rig, "coder")
    known, missing = uuid.uuid4().hex, f"main.{uuid.uuid4()}.{uuid.uuid4()}"
    begun = await rig.http.post("/v1/calls", json=REFUND, headers=bearer(secret) | {"idempotency-key": known})
    assert begun.status_code == 200, begun.text
    tried = [
        ("scope", "GET", "/v1/turns", None, ""),
        ("scope", "POST", f"/v1/approvals/{missing}.c1.1/decide", {}, ""),
        ("not_allowed", "POST", "/v1/calls", REFUND | {"user": "ana"}, "k"),
        ("not_allowed", "POST", "/v1/calls", REFUND | {"agent": "clerk"}, "k"),
        ("conflict", "POST", "/v1/calls", REFUND | {"args": {"order": "A7", "euro": 21}}, known),
        ("unknown", "POST", f"/v1/calls/{missing}/use", {}, ""),
    ]
    before = await refusals(rig, "actor:coder")
    for code, method, path, body, key in tried:
        assert await code_of(rig, secret, method, path, body, key) == code
    found = (await refusals(rig, "actor:coder"))[len(before) :]
    assert [(each["code"], each["where"]) for each in found] == [(each[0], f"{each[1]} {each[2]}") for each in tried]
    assert all(each["act"] == "refused to an agent" and each["reason"] for each in found)


async def test_refused_proposal_with_a_persons_token_is_recorded_under_the_person(agent: CallRig) -> None:
    rig, before = production_gateway(agent.rig), await refusals(agent.rig, "ana")
    assert await code_of(rig, await token_of(agent.rig, "ana"), "POST", "/v1/calls", REFUND) == "scope"
    assert len(await refusals(rig, "ana")) == len(before) + 1


async def test_state_of_a_call_is_not_recorded_as_refusal(agent: CallRig) -> None:
    rig, secret = production_gateway(agent.rig), await call_token(agent.rig, "coder")
    asked = {"tool": "refund", "args": {"order": "A7", "euro": 200}}
    headers = bearer(secret) | {"idempotency-key": uuid.uuid4().hex}
    call = (await rig.http.post("/v1/calls", json=asked, headers=headers)).json()["id"]
    before = await refusals(rig, "actor:coder")
    assert await code_of(rig, secret, "POST", f"/v1/calls/{call}/use", {}) == "waiting"
    assert await code_of(rig, secret, "POST", "/v1/calls", {"tool": 7}) == "malformed"
    assert await refusals(rig, "actor:coder") == before


async def test_flood_of_refusals_does_not_fill_the_audit_log(agent: CallRig) -> None:
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    moments = itertools.count(1)
    passed = timedelta()

    def clock() -> datetime:
        return minute + passed + timedelta(microseconds=next(moments))

    rig, secret = production_gateway(agent.rig, clock), await call_token(agent.rig, "coder")
    before = await refusals(rig, "actor:coder")
    for _ in range(ATTEMPTS_A_MINUTE + 5):
        assert await code_of(rig, secret, "POST", "/v1/calls", REFUND | {"user": "ana"}, "k") == "not_allowed"
    assert len(await refusals(rig, "actor:coder")) == len(before) + ATTEMPTS_A_MINUTE
    passed = timedelta(minutes=1)
    assert await code_of(rig, secret, "POST", "/v1/calls", REFUND | {"user": "ana"}, "k") == "not_allowed"
    assert (await refusals(rig, "actor:coder"))[-1]["more_before"] == 5
