"""Records that rest on the word of a turn alone: pages, API and command line show them as claims."""

import re
from datetime import UTC, datetime

from gateway_rig import GatewayRig, turn_of

from signoff.activities.call_journal import mark_claims
from signoff.audit.log import AuditLog
from signoff.audit.timeline import timeline
from signoff.contracts.audit import AuditEntry
from signoff.contracts.ids import TurnKey
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.languages.catalogue import language_codes

CLAIM = (
    "the turn reports: answered approved (over inbox, mfa, signed by key 12ab): accepted: as agreed by phone",
    "root (not verified)",
)


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
    named = turn_of(await gateway.asked("pay"))
    records = await AuditLog(gateway.deps.store).stream(named.workflow_id)
    assert {each.kind: each.subject for each in records} == {"turn": "", "proposal": "guest", "request": "guest"}
