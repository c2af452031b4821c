"""What is done beside deciding is recorded, too: signing in and out, links, the kill switch, grants."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from gateway_login import bearer, browser, hidden, locked_rig, sign_in, token_of
from gateway_rig import GatewayRig, turn_of

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts.limits import REFUSALS_A_MINUTE
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link


async def acts(rig: GatewayRig, tenant: str = "main") -> list[Record]:
    return await AuditLog(rig.deps.store).stream(f"admin/{tenant}")


def names(records: list[Record]) -> list[tuple[str, str]]:
    return [(record.subject, record.facts["act"]) for record in records]


async def taken_back(rig: GatewayRig, path: str) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return await rig.http.delete(path, params={"as": "approver"}, headers=headers)


async def test_signing_in_and_out_is_recorded_without_the_secret(rig: GatewayRig) -> None:
    locked = locked_rig(rig)
    secret = await token_of(locked, "ana")
    async with browser(locked) as page:
        assert (await sign_in(page, secret)).status_code == 303
        cookie = page.cookies["signoff_session"]
        form = hidden((await page.get("/")).text, "/logout")
        assert (await page.post("/logout", data=form)).status_code == 303
    records = await acts(locked)
    assert names(records) == [("ana", "sign-in"), ("ana", "sign-out")]
    assert (records[0].facts["assurance"], len(records[0].facts["token"])) == ("session", 12)
    assert not [record for record in records if secret in record.data or cookie in record.data]


async def test_refused_sign_ins_are_recorded_so_many_a_minute(rig: GatewayRig) -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    locked = locked_rig(rig, clock=lambda: now[0])
    async with browser(locked) as page:
        assert (await sign_in(page, "sgf_guessed")).status_code == 401
    for _ in range(REFUSALS_A_MINUTE + 5):
        now[0] += timedelta(milliseconds=1)
        assert (await locked.http.get("/v1/approvals", headers=bearer("sgf_guessed"))).status_code == 401
    now[0] += timedelta(minutes=1)
    await locked.http.get("/v1/approvals", headers=bearer("sgf_guessed"))
    records = await acts(locked)
    assert {record.facts["act"] for record in records} == {"sign-in refused"}
    channels = [record.facts["channel"] for record in records]
    assert (channels.count("inbox"), channels.count("api")) == (1, REFUSALS_A_MINUTE + 1)
    assert records[-1].facts["more_before"] == 5
    assert not [record for record in records if "guessed" in record.model_dump_json()]


async def test_a_link_that_was_opened_is_recorded_once(rig: GatewayRig) -> None:
    approval = await rig.asked("easy")
    link = ApprovalLink(
        approval=approval, revision=1, person="ana", channel="email", expires=datetime(2100, 1, 1, tzinfo=UTC)
    )
    written = make_link(await rig.deps.store.secret_key(LINK_KEY), link)
    async with browser(rig) as page:
        for _ in range(3):
            assert (await page.get(f"/link/{written}")).status_code == 200
    records = await AuditLog(rig.deps.store).stream(turn_of(approval).workflow_id)
    opened = [record for record in records if record.kind == "delivery"]
    assert [(record.subject, record.facts["event"], record.facts["channel"]) for record in opened] == [
        ("ana", "opened", "email")
    ]
    assert written not in opened[0].data
    await rig.decide(approval, **{"verdict": "denied", "as": "approver"})


@pytest.mark.usefixtures("nothing_waits")
async def test_the_kill_switch_is_recorded_over_the_api(rig: GatewayRig) -> None:
    for _ in range(2):
        frozen = await rig.http.post("/v1/freezes?as=approver", json={"reason": "a leak"})
        assert frozen.status_code == 200, frozen.text
    codes = [(await taken_back(rig, "/v1/freezes/main")).status_code for _ in range(2)]
    assert codes == [200, 404]
    records = await acts(rig)
    assert names(records) == [("approver", "freeze"), ("approver", "thaw")]
    assert (records[0].facts["reason"], records[0].facts["channel"]) == ("a leak", "api")


async def test_a_remembered_answer_is_recorded_when_it_is_made_and_taken_back(rig: GatewayRig) -> None:
    wish: dict[str, Any] = {"scope": "tenant", "where": "args.amount < 500.0", "uses": 3, "seconds": 600}
    approval = await rig.asked("alike")
    answer = await rig.decide(approval, **{"verdict": "approved", "as": "approver", "remember": wish})
    assert answer.json()["status"] == "accepted", answer.text
    await rig.turns.signoff.result(turn_of(approval))
    (grant,) = (await rig.http.get("/v1/grants")).json()["grants"]
    for _ in range(2):
        back = await taken_back(rig, f"/v1/grants/{grant['id']}")
        assert back.status_code == 200, back.text
    records = await acts(rig)
    assert names(records) == [("approver", "remember"), ("approver", "revoke")]
    made = records[0].facts
    assert (made["grant"], made["uses"], made["seconds"], made["approval"]) == (grant["id"], 3, 600, approval)
    assert "args.amount" not in records[0].data
