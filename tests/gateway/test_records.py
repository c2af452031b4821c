import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from gateway_login import bearer, browser, hidden, locked_rig, sign_in, token_of
from gateway_rig import PASSWORD, GatewayRig, turn_of

from signoff.activities.call_journal import mark_claims
from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.audit.timeline import timeline
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import REFUSALS_A_MINUTE
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.gateway.approvals.approval_links import LINK_KEY, ApprovalLink, make_link
from signoff.gateway.audit_writer import AttemptRecords
from signoff.languages.catalogue import language_codes

CLAIM = (
    "the turn reports: answered approved (over inbox, mfa, signed by key 12ab): accepted: as agreed by phone",
    "root (not verified)",
)


def names(records: list[Record]) -> list[tuple[str, str]]:
    return [(record.subject, record.facts["act"]) for record in records]


async def taken_back(rig: GatewayRig, path: str) -> httpx2.Response:
    headers = {"content-type": "application/json"}
    return await rig.http.delete(path, params={"as": "approver"}, headers=headers)


async def test_sign_in_and_sign_out_are_recorded_without_the_secret(rig: GatewayRig) -> None:
    locked = locked_rig(rig)
    secret = await token_of(locked, "ana")
    async with browser(locked) as page:
        assert (await sign_in(page, secret)).status_code == 303
        cookie = page.cookies["signoff_session"]
        form = hidden((await page.get("/")).text, "/logout")
        assert (await page.post("/logout", data=form)).status_code == 303
    records = await locked.acts()
    assert names(records) == [("ana", "sign-in"), ("ana", "sign-out")]
    assert (records[0].facts["assurance"], len(records[0].facts["token"])) == ("session", 12)
    assert not [record for record in records if secret in record.data or cookie in record.data]


async def test_refused_sign_ins_are_recorded_up_to_a_limit_per_minute(rig: GatewayRig) -> None:
    now = [datetime(2030, 1, 1, tzinfo=UTC)]
    locked = locked_rig(rig, clock=lambda: now[0])
    async with browser(locked) as page:
        assert (await sign_in(page, "sgf_guessed")).status_code == 401
    for _ in range(REFUSALS_A_MINUTE + 5):
        now[0] += timedelta(milliseconds=1)
        assert (await locked.http.get("/v1/approvals", headers=bearer("sgf_guessed"))).status_code == 401
    now[0] += timedelta(minutes=1)
    await locked.http.get("/v1/approvals", headers=bearer("sgf_guessed"))
    records = await locked.acts()
    assert {record.facts["act"] for record in records} == {"sign-in refused"}
    channels = [record.facts["channel"] for record in records]
    assert (channels.count("inbox"), channels.count("api")) == (1, REFUSALS_A_MINUTE + 1)
    assert records[-1].facts["more_before"] == 5
    assert not [record for record in records if "guessed" in record.model_dump_json()]


async def test_opened_link_is_recorded_once(rig: GatewayRig) -> None:
    approval = await rig.asked("easy")
    link = ApprovalLink(
        approval=approval, revision=1, person="ana", channel="email", expires=datetime(2100, 1, 1, tzinfo=UTC)
    )
    written = make_link(await rig.deps.store.secret_key(LINK_KEY), link)
    async with browser(rig) as page:
        for _ in range(3):
            assert (await page.get(f"/link/{written}")).status_code == 200
    records = await rig.records(approval)
    opened = [record for record in records if record.kind == "delivery"]
    assert [(record.subject, record.facts["event"], record.facts["channel"]) for record in opened] == [
        ("ana", "opened", "email")
    ]
    assert written not in opened[0].data
    await rig.decide(approval, **{"verdict": "denied", "as": "approver"})


@pytest.mark.usefixtures("nothing_waits")
async def test_freeze_and_unfreeze_are_recorded_over_the_api(rig: GatewayRig) -> None:
    for _ in range(2):
        frozen = await rig.http.post("/v1/freezes?as=approver", json={"reason": "a leak"})
        assert frozen.status_code == 200, frozen.text
    codes = [(await taken_back(rig, "/v1/freezes/main")).status_code for _ in range(2)]
    assert codes == [200, 404]
    records = await rig.acts()
    assert names(records) == [("approver", "freeze"), ("approver", "unfreeze")]
    assert (records[0].facts["reason"], records[0].facts["channel"]) == ("a leak", "api")


async def test_grant_is_recorded_when_created_and_revoked(rig: GatewayRig) -> None:
    wish: dict[str, Any] = {"scope": "tenant", "where": "args.amount < 500.0", "uses": 3, "seconds": 600}
    approval = await rig.asked("alike")
    answer = await rig.decide(approval, **{"verdict": "approved", "as": "approver", "remember": wish})
    assert answer.json()["status"] == "accepted", answer.text
    await rig.turns.signoff.result(turn_of(approval))
    (grant,) = (await rig.http.get("/v1/grants")).json()["grants"]
    for _ in range(2):
        back = await taken_back(rig, f"/v1/grants/{grant['id']}")
        assert back.status_code == 200, back.text
    records = await rig.acts()
    assert names(records) == [("approver", "remember"), ("approver", "revoke")]
    made = records[0].facts
    assert (made["grant"], made["uses"], made["seconds"], made["approval"]) == (grant["id"], 3, 600, approval)
    assert "args.amount" not in records[0].data


@pytest.fixture
async def locked(gateway: GatewayRig) -> AsyncIterator[GatewayRig]:
    found = locked_rig(gateway)
    async with found.http:
        yield found


async def stops(gateway: GatewayRig, approval: str) -> list[Record]:
    return [record for record in await gateway.records(approval) if "stop" in record.facts]


async def test_successful_and_refused_stops_of_a_turn_are_recorded(gateway: GatewayRig, locked: GatewayRig) -> None:
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
    assert [each.what for each in timeline(records)] == ["requested a stop: refused", "requested a stop: asked"]


async def test_person_without_read_access_leaves_no_audit_entry(gateway: GatewayRig, locked: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    headers = bearer(await token_of(locked, "zoe", tenant="acme")) | {"content-type": "application/json"}
    url = f"/v1/turns/{approval.rsplit('.', 2)[0]}/cancel"
    assert (await locked.http.post(url, headers=headers)).status_code == 404
    assert await stops(gateway, approval) == []


@pytest.fixture
def counting(gateway: GatewayRig) -> GatewayRig:
    """Refusals in other tests use up the limit of this minute."""
    return gateway.beside(attempts=AttemptRecords())


def facts(records: list[Record], kind: str) -> list[dict[str, Any]]:
    return [record.facts for record in records if record.kind == kind]


async def until_outcome(gateway: GatewayRig, approval_id: str) -> list[Record]:
    async with asyncio.timeout(60):
        while True:
            records = await gateway.records(approval_id)
            if facts(records, "outcome"):
                return records
            await asyncio.sleep(0.02)


async def test_decided_call_is_recorded_from_request_to_outcome(counting: GatewayRig) -> None:
    approval = await counting.asked("login")
    await counting.decide(approval, **{"verdict": "approved", "as": "bo"})
    accepted = await counting.decide(approval, **{"verdict": "approved", "as": "approver", "reason": "fine"})
    assert accepted.status_code == 200, accepted.text
    records = await until_outcome(counting, approval)
    kinds = [record.kind for record in records]
    assert kinds == ["turn", "proposal", "request", "attempt", "attempt", "ending", "execution", "outcome"]
    refused, counted = facts(records, "attempt")
    assert (refused["status"], refused["receipt"], refused["reporter"]) == ("refused", "not_allowed", "gateway")
    assert (counted["status"], counted["reason"], counted["assurance"]) == ("accepted", "fine", "session")
    assert (counted["unsigned"], bool(counted["key_id"])) == (False, True)
    assert [record.subject for record in records if record.kind == "attempt"] == ["bo", "approver"]
    assert facts(records, "request")[0]["digest"] == facts(records, "execution")[0]["digest"]
    assert not [record for record in records if PASSWORD in record.model_dump_json()]


async def test_attempt_after_the_end_is_recorded(counting: GatewayRig) -> None:
    approval = await counting.asked("pay")
    await counting.decide(approval, **{"verdict": "denied", "reason": "no", "as": "approver"})
    late = await counting.decide(approval, **{"verdict": "approved", "as": "approver"})
    assert late.json()["code"] == "already_decided"
    async with asyncio.timeout(60):
        while len(attempts := facts(await counting.records(approval), "attempt")) < 2:
            await asyncio.sleep(0.02)
    assert {each.get("receipt", "") for each in attempts} == {"", "already_decided"}


def a_false_answer(turn: TurnKey) -> AuditEntry:
    return AuditEntry(
        stream=turn.workflow_id,
        key="attempt/forged",
        kind="attempt",
        at=datetime.now(UTC),
        tenant=turn.tenant,
        subject="root",
        data={
            "verdict": "approved", "channel": "inbox", "assurance": "mfa", "status": "accepted", "key_id": "12ab",
            "unsigned": "", "reason": "as agreed by phone",
        },
    )  # fmt: skip


async def test_answer_that_only_the_turn_reports_is_shown_as_a_claim(gateway: GatewayRig) -> None:
    named = turn_of(await gateway.asked("pay"))
    log = AuditLog(gateway.deps.store)
    await log.append(mark_claims([a_false_answer(named)]))
    record = (await log.stream(named.workflow_id))[-1]
    assert (record.subject, record.facts["claimed_subject"]) == ("", "root")
    report = (await gateway.http.get(f"/v1/audit/{'.'.join(named)}")).json()
    assert (report["timeline"][-1]["what"], report["timeline"][-1]["who"]) == CLAIM
    page = (await gateway.http.get(f"/audit/{'.'.join(named)}", headers={"accept-language": "en"})).text
    assert re.findall(r'record-what">(the turn reports[^<]*)', page)[-1] == CLAIM[0]
    assert f"<strong>{CLAIM[1]}</strong>" in page
    assert "Signoff did not verify it" in page
    told = {language: timeline([record], language)[0] for language in language_codes()}
    plain = {language: timeline([replace(record, key="k")], language)[0] for language in language_codes()}
    for language in language_codes():
        assert told[language].what != plain[language].what, language
        assert told[language].who not in ("", "root"), language


async def test_requester_of_an_unsigned_turn_is_recorded_as_a_claim(gateway: GatewayRig) -> None:
    turn = await gateway.turns.start("pay", principal=Principal(user="root"))
    await gateway.turns.waiting(turn)
    records = await AuditLog(gateway.deps.store).stream(turn.workflow_id)
    assert {"proposal", "request"} <= {each.kind for each in records}
    assert [each.subject for each in records] == [""] * len(records)
    assert {line.who for line in timeline(records)} == {"root (not verified)"}


async def test_requester_of_a_signed_turn_is_recorded_by_name(gateway: GatewayRig) -> None:
    records = await gateway.records(await gateway.asked("pay"))
    assert {each.kind: each.subject for each in records} == {"turn": "", "proposal": "guest", "request": "guest"}
