import asyncio
import dataclasses
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_login import STRANGER, asked_of, bearer, browser, hidden, locked_rig, sign_in, token_of
from gateway_rig import PEOPLE, SIGNER, GatewayRig
from raw_turns import wake
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from turn_fixtures import yes

from signoff.audit.log import AuditLog
from signoff.audit.record import Record
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey, parse_approval_id
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.engine.workflow_runs import execute_update
from signoff.formats.replace import replace
from signoff.gateway.audit_writer import AttemptRecords
from signoff.keys.signatures import PrivateKeys, Signer, new_key
from signoff.testing.questions import answer as store_answer

FOREIGN = Signer(PrivateKeys(keys=(new_key(datetime(2026, 1, 1, tzinfo=UTC)),)))
Facts = dict[str, Any]


@pytest.fixture(name="locked")
def fresh_gateway(locked: GatewayRig) -> GatewayRig:
    """Return a gateway that has recorded no attempt in this minute."""
    return locked_rig(dataclasses.replace(locked, deps=dataclasses.replace(locked.deps, attempts=AttemptRecords())))


async def asked(locked: GatewayRig, text: str = "both", by: str = "guest") -> ApprovalRequest:
    return await locked.turns.signoff.request(await asked_of(locked, text, by))


def key_of(request: ApprovalRequest) -> TurnKey:
    return TurnKey(request.tenant, request.session, request.turn)


def handle_of(locked: GatewayRig, request: ApprovalRequest) -> WorkflowHandle[Any, Any]:
    return locked.turns.client.get_workflow_handle(key_of(request).workflow_id)


def answer(request: ApprovalRequest, **fields: Any) -> Decision:
    given = {"subject": "ana", "question_hash": request.question_hash, "received_at": datetime.now(UTC)}
    return yes(key_of(request), **given | fields)


def signed(request: ApprovalRequest, **fields: Any) -> Decision:
    return SIGNER.sign_decision(answer(request, **fields))


async def given(locked: GatewayRig, decision: Decision) -> Receipt:
    await store_answer(locked.deps.store, decision)
    return await wake(locked.turns.signoff, locked.deps.store, decision)


async def attempts(locked: GatewayRig, request: ApprovalRequest) -> list[Record]:
    records = await AuditLog(locked.deps.store).stream(key_of(request).workflow_id)
    return [record for record in records if record.kind == "attempt"]


async def agreed(locked: GatewayRig, request: ApprovalRequest) -> None:
    for person in ("ana", "bo"):
        receipt = await given(locked, signed(request, subject=person))
        assert receipt.status != "refused", receipt
    await asyncio.wait_for(locked.turns.signoff.result(key_of(request)), 60)
    assert await locked.runs(request.id) == 1


def _later(request: ApprovalRequest) -> datetime:
    assert request.expires_at is not None
    return request.expires_at + timedelta(seconds=1)


ATTEMPTS: dict[str, tuple[str, Callable[[ApprovalRequest], Decision]]] = {
    "forged: unsigned": ("assurance", answer),
    "forged: by another key": ("assurance", lambda r: FOREIGN.sign_decision(answer(r))),
    "forged: by another key under our name": (
        "assurance", lambda r: replace(FOREIGN.sign_decision(answer(r)), key_id=SIGNER.key_id)
    ),
    "forged: another reason": ("assurance", lambda r: replace(signed(r), reason="I said so")),
    "forged: another delivery": ("assurance", lambda r: replace(signed(r), delivery_id=uuid.uuid4().hex)),
    "forged: an earlier time": (
        "assurance", lambda r: replace(signed(r), received_at=datetime.now(UTC) - timedelta(days=1))
    ),
    "forged: another author": ("assurance", lambda r: replace(signed(r), subject="bo")),
    "forged: a no made a yes": (
        "assurance", lambda r: replace(signed(r, verdict="denied"), verdict="approved")
    ),
    "replayed: another request's, renamed": (
        "assurance", lambda r: replace(signed(r, approval_id="main.x.y.c1.1"), approval_id=r.id)
    ),
    "replayed: another request's, as it was": ("unknown", lambda r: signed(r, approval_id="main.x.y.c1.1")),
    "late": ("assurance", lambda r: signed(r, received_at=_later(r))),
    "wrong digest": ("stale", lambda r: signed(r, question_hash="0" * 64)),
    "wrong revision": ("stale", lambda r: signed(r, revision=2)),
    "cross-tenant": ("assurance", lambda r: signed(r, subject=STRANGER.id)),
    "a stranger": ("assurance", lambda r: signed(r, subject="nobody")),
    "somebody who left": ("assurance", lambda r: signed(r, subject="gone")),
    "no approver of this": ("assurance", lambda r: signed(r, subject="approver")),
    "who asked": ("assurance", lambda r: signed(r, subject="guest")),
    "an edit where none may": ("assurance", lambda r: signed(r, subject="nobody", edited_args={"amount": 1})),
    "an answer of another kind": ("assurance", lambda r: signed(r, verdict="happened")),
}  # fmt: skip


async def test_invalid_answer_is_refused_and_recorded_by_update_and_signal(
    locked: GatewayRig,
) -> None:
    """A signed answer outside the store was never accepted by the gateway: `assurance` for any author."""
    request = await asked(locked)
    handle, sent = handle_of(locked, request), {}
    for what, (code, make) in ATTEMPTS.items():
        for door in ("update", "signal"):
            decision = make(request)
            delivery = decision.delivery_id
            sent[delivery] = (what, code)
            body = decision.model_dump(mode="json", exclude_none=True)
            if door == "signal":
                await handle.signal(names.APPROVAL_RESPONSE, body)
                continue
            receipt: Receipt = await execute_update(handle, names.DECIDE, body, result_type=Receipt)
            assert (receipt.status, receipt.code) == ("refused", code), what
    await locked.turns.until(key_of(request), lambda view: view.refusals >= len(sent))
    assert await locked.turns.signoff.request(request.id) == request
    await agreed(locked, request)
    records = await attempts(locked, request)
    found = {record.key.split("/")[2]: record.facts["receipt"] for record in records if "receipt" in record.facts}
    assert found == {delivery: code for delivery, (_, code) in sent.items()}
    assert not [record for record in records if '"to"' in record.data]


async def test_repeated_answer_counts_once_and_is_recorded(locked: GatewayRig) -> None:
    request = await asked(locked)
    first, handle = signed(request), handle_of(locked, request)
    body = first.model_dump(mode="json", exclude_none=True)
    await given(locked, first)
    receipts = [await locked.turns.signoff.decide(first) for _ in range(2)]
    for _ in range(3):
        await handle.signal(names.APPROVAL_RESPONSE, body)
    headers, url = bearer(await token_of(locked, "ana")), f"/v1/approvals/{request.id}/decide"
    again = {"verdict": "approved", "question_hash": request.question_hash}
    other = Receipt.model_validate((await locked.http.post(url, json=again, headers=headers)).json())
    assert [(receipt.status, receipt.votes) for receipt in (*receipts, other)] == [("counted", 1)] * 3
    assert other.code == "duplicate"
    await agreed(locked, request)
    records = await attempts(locked, request)
    repeated = [record.facts for record in records if first.delivery_id in record.key]
    assert [(each["status"], each.get("receipt", "")) for each in repeated] == [("counted", "duplicate")]


ENVELOPES: dict[str, Any] = {
    "nothing in it": {},
    "no verdict": {"approval_id": "main.a.b.c1.1"},
    "an unknown verdict": {"approval_id": "main.a.b.c1.1", "verdict": "yes"},
    "a null verdict": {"approval_id": "main.a.b.c1.1", "verdict": None},
    "a number for a text": {"approval_id": 7, "verdict": "approved"},
    "a list for a number": {"approval_id": "main.a.b.c1.1", "verdict": "approved", "revision": [1]},
    "a time without a zone": {"approval_id": "x", "verdict": "approved", "received_at": "2026-01-01T00:00:00"},
    "an endless reason": {"approval_id": "x", "verdict": "denied", "reason": "é" * 3_000},
}
NO_OBJECTS: dict[str, Any] = {"null": None, "a text": "approved", "a list": [{"verdict": "approved"}]}


async def test_malformed_envelope_is_refused_with_its_field_and_recorded(locked: GatewayRig) -> None:
    request = await asked(locked)
    handle = handle_of(locked, request)
    for what, body in ENVELOPES.items():
        receipt: Receipt = await execute_update(handle, names.DECIDE, body, result_type=Receipt)
        assert (receipt.status, receipt.code) == ("refused", "malformed"), what
        assert receipt.message.startswith("`"), what
        await handle.signal(names.APPROVAL_RESPONSE, {**body, "other": "by signal"})
    for what, body in NO_OBJECTS.items():
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await execute_update(handle, names.DECIDE, body)
        assert "one JSON object" in str(caught.value.cause), what
        await handle.signal(names.APPROVAL_RESPONSE, body)
    signals = len(ENVELOPES) + len(NO_OBJECTS)
    await locked.turns.until(key_of(request), lambda view: view.refusals >= len(ENVELOPES) + signals)
    assert await locked.turns.signoff.request(request.id) == request
    await agreed(locked, request)
    records = [each for each in await attempts(locked, request) if each.facts.get("receipt") == "malformed"]
    assert len({record.facts["body"] for record in records}) == len(records) == len(ENVELOPES) + signals
    assert {record.stream for record in records} == {key_of(request).workflow_id}


async def test_page_answer_of_a_former_approver_is_refused_and_recorded(locked: GatewayRig) -> None:
    request = await asked(locked)
    path = f"/approvals/{request.id}"
    gone = locked_rig(locked, people=[each for each in PEOPLE if each.id != "bo"] + [Person(id="bo", name="Bo")])
    async with browser(locked) as page:
        await sign_in(page, await token_of(locked, "bo"))
        form = hidden((await page.get(path)).text, f"{path}/decide")
        cookies = page.cookies
        async with browser(gone) as later:
            later.cookies = cookies
            sent = await later.post(f"{path}/decide", data={**form, "verdict": "approved"})
    assert sent.status_code == 404, sent.text
    assert (await locked.turns.signoff.request(request.id)).votes == ()
    await agreed(locked, request)
    tried = [(each.subject, each.facts.get("receipt")) for each in await attempts(locked, request)]
    assert ("bo", "not_allowed") in tried


BODIES: dict[str, bytes] = {
    "no JSON": b"{",
    "a list": b"[]",
    "an unknown verdict": b'{"verdict": "perhaps"}',
    "an empty verdict": b'{"verdict": ""}',
    "no text": b"\xff" * 70_000,
    "no verdict": b"{}",
    "a wrong type": b'{"verdict": "approved", "revision": "one"}',
    "a field nobody knows": b'{"verdict": "approved", "subject": "ana", "assurance": "mfa"}',
    "an endless body": json.dumps({"verdict": "denied", "reason": "a" * 70_000}).encode(),
    "nested without end": b'{"verdict": "approved", "edited_args": ' + b"[" * 3_000 + b"]" * 3_000 + b"}",
}


async def test_malformed_body_returns_422_and_is_recorded(locked: GatewayRig) -> None:
    request = await asked(locked)
    headers = {**bearer(await token_of(locked, "ana")), "content-type": "application/json"}
    for what, body in BODIES.items():
        sent = await locked.http.post(f"/v1/approvals/{request.id}/decide", content=body, headers=headers)
        assert (sent.status_code, sent.json()["code"]) == (422, "malformed"), (what, sent.text)
    assert await locked.turns.signoff.request(request.id) == request
    records = await attempts(locked, request)
    assert [record.subject for record in records] == ["ana"] * len(BODIES)
    assert len({record.facts["body"] for record in records}) == len(BODIES)
    assert "perhaps" not in "".join(record.model_dump_json() for record in records)
    await agreed(locked, request)


WRONG: dict[str, tuple[str, Facts, int, str]] = {
    "a stranger": ("approver", {}, 404, "unknown"),
    "who asked": ("guest", {}, 403, "not_allowed"),
    "somebody else's name": ("approver", {}, 403, "not_allowed"),
    "wrong hash": ("ana", {"question_hash": "0" * 64}, 409, "stale"),
    "a mark": ("ana", {"question_hash": "00000000"}, 409, "stale"),
    "wrong revision": ("ana", {"revision": 7}, 409, "stale"),
}


async def test_api_refusals_are_recorded_under_their_author(locked: GatewayRig) -> None:
    request = await asked(locked)
    good = {"verdict": "approved", "question_hash": request.question_hash}
    for what, (person, body, status, code) in WRONG.items():
        headers = bearer(await token_of(locked, person))
        named = "?as=ana" if what == "somebody else's name" else ""
        url = f"/v1/approvals/{request.id}/decide{named}"
        sent = await locked.http.post(url, json={**good, **body}, headers=headers)
        assert (sent.status_code, sent.json()["code"]) == (status, code), (what, sent.text)
    assert (await locked.turns.signoff.request(request.id)).votes == ()
    await agreed(locked, request)
    tried = {(record.subject, record.facts.get("receipt")) for record in await attempts(locked, request)}
    # A stranger's reply hides the request; the audit log has the reason.
    written = {"unknown": "not_allowed"}
    assert {(person, written.get(code, code)) for person, _, _, code in WRONG.values()} <= tried


async def test_self_approval_is_refused_and_recorded(locked: GatewayRig) -> None:
    request = await asked(locked, "pay", "ana")
    headers = bearer(await token_of(locked, "ana"))
    own = {"verdict": "approved", "question_hash": request.question_hash}
    sent = await locked.http.post(f"/v1/approvals/{request.id}/decide", json=own, headers=headers)
    assert (sent.status_code, sent.json()["code"]) == (403, "self_approval")
    assert (await locked.turns.signoff.decide(signed(request))).code == "assurance"
    assert (await given(locked, signed(request, subject="approver"))).status == "accepted"
    await asyncio.wait_for(locked.turns.signoff.result(key_of(request)), 60)
    entries = [
        (record.subject, record.facts.get("claimed_subject"), record.facts.get("receipt", ""))
        for record in await attempts(locked, request)
    ]
    assert entries == [("ana", None, "self_approval"), ("", "ana", "assurance")]


async def test_token_of_another_tenant_finds_nothing_and_is_recorded(locked: GatewayRig) -> None:
    request = await asked(locked)
    headers = bearer(await token_of(locked, STRANGER.id, tenant=STRANGER.tenant))
    for name in (request.id, request.code):
        sent = await locked.http.post(f"/v1/approvals/{name}/decide", json={"verdict": "approved"}, headers=headers)
        assert sent.status_code in (403, 404), sent.text
    assert (await locked.turns.signoff.request(request.id)).votes == ()
    await agreed(locked, request)
    tried = [record for record in await attempts(locked, request) if record.subject == STRANGER.id]
    assert [record.facts["status"] for record in tried] == ["refused"]


async def test_answer_to_an_unknown_request_is_recorded(locked: GatewayRig) -> None:
    log, headers = AuditLog(locked.deps.store), bearer(await token_of(locked, "ana"))
    before = len(await log.stream("admin/main"))
    for name in (f"main.{uuid.uuid4().hex[:12]}.t.c1.1", "Z9Z-9ZZ", "nothing"):
        sent = await locked.http.post(f"/v1/approvals/{name}/decide", json={"verdict": "approved"}, headers=headers)
        assert (sent.status_code, sent.json()["code"]) == (404, "unknown"), sent.text
        named = parse_approval_id(name)
        if named is not None:
            (record,) = await log.stream(named.turn.workflow_id)
            assert (record.subject, record.facts["receipt"]) == ("ana", "unknown")
    assert len(await log.stream("admin/main")) == before + 2
