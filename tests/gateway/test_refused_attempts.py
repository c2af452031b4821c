"""What the gateway and a turn write down between them: each attempt once, none of them with an argument."""

import asyncio
from typing import Any

import pytest
from gateway_rig import PASSWORD, GatewayRig, turn_of

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.gateway.audit_writer import AttemptRecords


@pytest.fixture(name="gateway")
def gateway_that_wrote_nothing(gateway: GatewayRig) -> GatewayRig:
    """The shared gateway with a count of its own: other tests' refusals in this minute may have used up what is
    written down of the same people.
    """
    return gateway.beside(attempts=AttemptRecords())


async def of_turn(gateway: GatewayRig, approval_id: str) -> list[Record]:
    return await AuditLog(gateway.deps.store).stream(turn_of(approval_id).workflow_id)


def facts(records: list[Record], kind: str) -> list[dict[str, Any]]:
    return [record.facts for record in records if record.kind == kind]


async def until_outcome(gateway: GatewayRig, approval_id: str) -> list[Record]:
    async with asyncio.timeout(60):
        while True:
            records = await of_turn(gateway, approval_id)
            if facts(records, "outcome"):
                return records
            await asyncio.sleep(0.02)


async def test_a_decided_call_is_recorded_from_request_to_outcome(gateway: GatewayRig) -> None:
    approval = await gateway.asked("login")
    await gateway.decide(approval, **{"verdict": "approved", "as": "bo"})
    accepted = await gateway.decide(approval, **{"verdict": "approved", "as": "approver", "reason": "fine"})
    assert accepted.status_code == 200, accepted.text
    records = await until_outcome(gateway, approval)
    kinds = [record.kind for record in records]
    assert kinds == ["turn", "proposal", "request", "attempt", "attempt", "ending", "execution", "outcome"]
    refused, counted = facts(records, "attempt")
    assert (refused["status"], refused["receipt"], refused["reporter"]) == ("refused", "not_allowed", "gateway")
    assert (counted["status"], counted["reason"], counted["assurance"]) == ("accepted", "fine", "session")
    assert (counted["unsigned"], bool(counted["key_id"])) == (False, True)
    assert [record.subject for record in records if record.kind == "attempt"] == ["bo", "approver"]
    assert facts(records, "request")[0]["digest"] == facts(records, "execution")[0]["digest"]
    assert not [record for record in records if PASSWORD in record.model_dump_json()]


async def test_an_attempt_after_the_end_is_recorded(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    await gateway.decide(approval, **{"verdict": "denied", "reason": "no", "as": "approver"})
    late = await gateway.decide(approval, **{"verdict": "approved", "as": "approver"})
    assert late.json()["code"] == "already_decided"
    async with asyncio.timeout(60):
        while len(attempts := facts(await of_turn(gateway, approval), "attempt")) < 2:
            await asyncio.sleep(0.02)
    assert {each.get("receipt", "") for each in attempts} == {"", "already_decided"}
