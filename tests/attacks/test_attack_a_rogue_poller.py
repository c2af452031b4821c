from datetime import UTC, datetime
from typing import Any

import pytest
from attack_site import AttackSite, approval_id, is_turns_word, payee, until, words
from impostor import Impostor
from rogue_worker import CLAIMED, rogue_on

from signoff.contracts import names
from signoff.contracts.activity_messages import RecordTask
from signoff.contracts.audit import AuditEntry
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.engine.workflow_runs import execute_update

pytestmark = pytest.mark.timeout(300)

RAN = "Ran, approved by"


def unproved(records: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [each for each in records if each["kind"] in kinds and not is_turns_word(each)]


async def never_paid(site: AttackSite, impostor: Impostor, to: str) -> TurnKey:
    rui, ana = site.person("rui"), site.person("ana")
    key = await rui.ask([("pay", {"amount": 9, "to": to})])
    shown = await ana.waiting(approval_id(key))
    async with site.without("worker"), rogue_on(impostor):
        await ana.decide(shown)
        await until(lambda: ended(impostor, key))
    return key


async def ended(impostor: Impostor, key: TurnKey) -> bool:
    described = await impostor.client.get_workflow_handle(key.workflow_id).describe()
    return described.close_time is not None


async def test_claimed_run_without_a_ticket_is_never_shown(site: AttackSite, impostor: Impostor) -> None:
    # A rogue worker answers `pay` with a receipt: neither card nor audit log shows a run, and no money moved. Without
    # the search for a ticket in `gateway/approvals/turn_proof.py` the card showed a run, and without the mark of
    # `activities/call_journal.py` the audit log did.
    to, rui, ana = payee(), site.person("rui"), site.person("ana")
    honest = await rui.ask([("pay", {"amount": 8, "to": to})])
    await ana.approve(approval_id(honest))
    await rui.result(honest)
    key = await never_paid(site, impostor, to)
    page = await site.browser("bo")
    truly, falsely = [(await page.open(approval_id(each)))[0].words for each in (honest, key)]
    assert site.amounts(to) == [8]
    assert (RAN in truly, RAN in falsely, CLAIMED in falsely) == (True, False, False)
    # The rogue worker has no store, so its turn's claims reach the audit log only through the honest worker.
    entry = AuditEntry(
        stream=key.workflow_id,
        key="outcome/c1.1",
        kind="outcome",
        at=datetime.now(UTC),
        tenant="main",
        data={"call": "c1.1", "tool": "pay", "code": "ok"},
    )
    await (await impostor.stand(key)).schedule(names.RECORD, "r1", RecordTask(audit=(entry,)))
    record = await site.person("aud").record(key)
    assert any(each["kind"] == "outcome" for each in record)
    assert unproved(record, "execution", "outcome") == []


async def test_forged_approval_is_credited_to_no_approver(site: AttackSite, impostor: Impostor) -> None:
    # A rogue worker accepts an unsigned approval in Ana's name, but the gateway does not show her as approver. With
    # the turn's own request shown in `gateway/approvals/turn_proof.py` instead of the stored one, the turn was shown
    # as approved by Ana.
    to, rui, bo = payee(), site.person("rui"), await site.browser("bo")
    key = await rui.ask([("pay", {"amount": 9, "to": to})])
    await site.person("ana").waiting(approval_id(key))
    yes = Decision(approval_id=approval_id(key), verdict="approved", subject="ana", reason="on the phone")
    async with site.without("worker"), rogue_on(impostor):
        handle = impostor.client.get_workflow_handle(key.workflow_id)
        await execute_update(handle, names.DECIDE, yes.model_dump(mode="json", exclude_none=True))
        await until(lambda: ended(impostor, key))
    view, (shown, _) = await site.person("bo").see(approval_id(key)), await bo.open(approval_id(key))
    assert (view.status, shown.status, site.amounts(to)) == (200, 200, [])
    assert (view.view.get("decided_by", ""), "approved by ana" in shown.words.lower()) == ("", False)
    [call] = (await site.person("bo").turn(key))["calls"]
    asked = call["approval"]
    # An ended turn may be shown without its requests if its worker is slow.
    assert asked is None or (asked["state"], asked["decided_by"], asked["votes"]) == ("pending", "", [])
    assert (call["outcome"] or {"decided_by": ""})["decided_by"] == ""
    turn = words((await bo.http.get(f"/turns/{'.'.join(key)}")).text)
    assert f"Pay 9 EUR to {to}" in turn
    assert "approved by" not in turn.lower()
