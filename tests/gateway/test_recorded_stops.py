"""Who stopped a turn, or wanted to, is in that turn's record."""

from collections.abc import AsyncIterator

import pytest
from gateway_login import bearer, locked_rig, token_of
from gateway_rig import GatewayRig, turn_of

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline


@pytest.fixture
async def locked(gateway: GatewayRig) -> AsyncIterator[GatewayRig]:
    """The turns behind a gateway of the production profile."""
    found = locked_rig(gateway)
    async with found.http:
        yield found


async def stops(gateway: GatewayRig, approval: str) -> list[Record]:
    """What the record of the turn of `approval` says of stopping it."""
    stream = await AuditLog(gateway.deps.store).stream(turn_of(approval).workflow_id)
    return [record for record in stream if "stop" in record.facts]


async def test_who_stops_a_turn_is_recorded_and_who_may_not_as_well(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/turns/{approval.rsplit('.', 2)[0]}/cancel"
    for person, status in (("approver", 403), ("guest", 202)):
        headers = bearer(await token_of(locked, person)) | {"content-type": "application/json"}
        assert (await locked.http.post(url, headers=headers)).status_code == status, person
    records = await stops(gateway, approval)
    assert [(record.subject, record.facts["stop"]) for record in records] == [
        ("approver", "refused"),
        ("guest", "asked"),
    ]
    assert [each.what for each in timeline(records)] == ["wanted to stop it: refused", "wanted to stop it: asked"]


async def test_who_may_not_read_a_turn_leaves_no_mark_in_it(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    headers = bearer(await token_of(locked, "zoe", tenant="acme")) | {"content-type": "application/json"}
    url = f"/v1/turns/{approval.rsplit('.', 2)[0]}/cancel"
    assert (await locked.http.post(url, headers=headers)).status_code == 404
    assert await stops(gateway, approval) == []
