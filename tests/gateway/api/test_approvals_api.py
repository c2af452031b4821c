import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gateway_rig import SIGNER, GatewayRig, turn_of
from tables import table

from signoff.contracts.ids import show_code


async def test_approval_runs_the_call(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    answer = await gateway.decide(approval, verdict="approved", revision=1)
    receipt = answer.json()
    assert answer.status_code == 200, receipt
    assert (receipt["status"], receipt["decided_by"], receipt["channel"]) == ("accepted", "approver", "api")
    key = (await gateway.turns.signoff.request(approval)).turn
    view = await gateway.http.get(f"/v1/turns/{key}/events")
    assert '"state":"complete"' in view.text
    assert await gateway.runs(approval) == 1


@pytest.mark.row("E58")
async def test_late_answer_names_the_first_decider(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    first = (await gateway.decide(approval, verdict="denied", reason="too expensive", **{"as": "ana"})).json()
    assert (first["decided_name"], first["reason"]) == ("Ana", "too expensive")
    answer = await gateway.decide(approval, verdict="approved")
    assert answer.status_code == 409
    assert (answer.json()["code"], answer.json()["decided_name"]) == ("already_decided", "Ana")
    assert await gateway.runs(approval) == 0


async def test_repeated_idempotency_key_returns_the_same_receipt(gateway: GatewayRig) -> None:
    approval = await gateway.asked("both")
    headers = {"Idempotency-Key": "k1"}
    url = f"/v1/approvals/{approval}/decide"
    body = {"verdict": "approved"}
    first = await gateway.http.post(url, params={"as": "ana"}, json=body, headers=headers)
    again = await gateway.http.post(url, params={"as": "ana"}, json=body, headers=headers)
    assert (first.json()["status"], first.json()["votes"], first.json()["needed"]) == ("counted", 1, 2)
    assert (again.status_code, again.json()["status"], again.json()["votes"]) == (200, "counted", 1)
    other = await gateway.http.post(url, params={"as": "bo"}, json=body, headers=headers)
    assert other.json()["status"] == "accepted"


@table(
    "body",
    b"",
    b"null",
    b"[]",
    b'"approved"',
    b"{}",
    b"{",
    b'{"verdict": null}',
    b'{"verdict": ""}',
    b'{"verdict": "yes"}',
    b'{"verdict": "APPROVED"}',
    b'{"verdict": ["approved"]}',
    b'{"verdict": "approved", "revision": 0}',
    b'{"verdict": "approved", "subject": "ana"}',
    b'{"verdict": "approved", "as": "ana"}',
    b'{"verdict": "approved", "reason": "' + b"x" * 70_000 + b'"}',
    b"\xff\xfe",
    b"[" * 50_000,
)
async def test_malformed_verdict_decides_nothing(gateway_once: tuple[GatewayRig, str], body: bytes) -> None:
    gateway, approval = gateway_once
    url = f"/v1/approvals/{approval}/decide"
    answer = await gateway.http.post(url, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"], answer.json()["status"]) == (422, "malformed", "refused")
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


@pytest.fixture
async def gateway_once(gateway: GatewayRig) -> tuple[GatewayRig, str]:
    return gateway, await gateway.asked("pay")


@table(
    ("fields", "status", "code"),
    ({"as": "guest"}, 403, "not_allowed"),
    ({"as": "nobody"}, 403, "not_allowed"),
    ({"as": "gone"}, 403, "not_allowed"),
    ({"revision": 2}, 409, "stale"),
    ({"question_hash": "0" * 64}, 409, "stale"),
    ({"question_hash": "00000000"}, 409, "stale"),
    ({"as": "ana"}, 403, "self_approval"),
)
async def test_refused_decision_returns_a_receipt_with_its_code(
    gateway: GatewayRig, fields: dict[str, Any], status: int, code: str
) -> None:
    approval = await gateway.asked("pay", user="ana" if code == "self_approval" else "guest")
    answer = await gateway.decide(approval, verdict="approved", **fields)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert (await gateway.turns.signoff.request(approval)).state == "pending"


async def test_decision_is_bound_by_question_hash_and_not_by_mark(gateway: GatewayRig) -> None:
    approval = await gateway.asked("login")
    shown = (await gateway.http.get(f"/v1/approvals/{approval}")).json()
    assert shown["digest"] == ""
    marked = await gateway.decide(approval, verdict="approved", revision=1, question_hash=shown["card"]["mark"])
    assert marked.json()["code"] == "stale"
    answer = await gateway.decide(approval, verdict="approved", revision=1, question_hash=shown["question_hash"])
    assert answer.json()["status"] == "accepted"


async def test_unknown_request_returns_a_404_receipt(gateway: GatewayRig) -> None:
    for name in ("main.a.b.c1.1", "K7Q-2FM", "nonsense"):
        answer = await gateway.decide(name, verdict="approved")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown"), name


async def test_short_code_finds_its_request(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    request = await gateway.turns.signoff.request(approval)
    async for _ in _listed(gateway, approval):
        break
    shown = await gateway.http.get(f"/v1/approvals/{show_code(request.code).lower()}")
    assert shown.json()["id"] == approval
    answer = await gateway.decide(request.code, verdict="denied")
    assert answer.json()["state"] == "denied"


async def _listed(gateway: GatewayRig, approval: str, **params: str) -> Any:
    """Visibility lags a little."""
    while True:
        found = (await gateway.http.get("/v1/approvals", params=params)).json()["approvals"]
        if any(card["id"] == approval for card in found):
            yield found
        await asyncio.sleep(0.05)


async def test_list_shows_one_persons_requests_soonest_first(gateway: GatewayRig) -> None:
    paid, both = await gateway.asked("pay"), await gateway.asked("both")
    async for found in _listed(gateway, both, **{"as": "bo"}):
        ids = [card["id"] for card in found]
        break
    assert paid not in ids
    everything = (await gateway.http.get("/v1/approvals", params={"limit": 1000})).json()["approvals"]
    due = [datetime.fromisoformat(card["expires_at"]) for card in everything]
    assert due == sorted(due)
    assert (await gateway.http.get("/v1/approvals", params={"as": "aprover"})).status_code == 404


async def test_received_at_is_set_by_the_gateway_clock(gateway: GatewayRig) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=7)
    approval = await gateway.asked("pay")
    async with gateway.beside(clock=lambda: moment).http as http:
        await http.post(f"/v1/approvals/{approval}/decide?as=ana", json={"verdict": "denied"})
    decision = (await gateway.turns.signoff.request(approval)).votes[0].decision
    assert (decision.received_at, decision.subject) == (moment, "ana")
    assert (decision.channel, decision.assurance) == ("api", "session")
    assert SIGNER.verifier().check_decision(decision)


async def test_only_requester_or_approver_withdraws_a_request(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/withdraw"
    refused = await gateway.http.post(url, params={"as": "bo"}, json={})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    done = await gateway.http.post(url, params={"as": "guest"}, json={"reason": "changed my mind"})
    assert (done.status_code, done.json()["state"]) == (200, "cancelled")
    assert (await gateway.decide(approval, verdict="approved")).json()["code"] == "cancelled"
    unknown = await gateway.http.post("/v1/approvals/main.a.b.c1.1/withdraw", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown")


async def test_refused_decisions_do_not_grow_the_turns_history(gateway: GatewayRig) -> None:
    approval = await gateway.asked("pay")
    named = turn_of(approval)
    handle = gateway.turns.client.get_workflow_handle(named.workflow_id)
    await gateway.turns.suspended(named)
    before = (await handle.describe()).history_length
    for _ in range(3):
        assert (await gateway.decide(approval, verdict="approved", **{"as": "guest"})).status_code == 403
    assert (await handle.describe()).history_length == before


@pytest.mark.parametrize(("agent", "channel"), [("signoff-cli/0.1.0", "cli"), ("signoff-cli", "api"), ("", "api")])
async def test_decision_of_the_command_line_is_recorded_as_cli(gateway: GatewayRig, agent: str, channel: str) -> None:
    headers = {"user-agent": agent}
    approval = await gateway.asked("pay")
    url = f"/v1/approvals/{approval}/decide"
    request = (await gateway.http.get(f"/v1/approvals/{approval}")).json()
    sent = {"verdict": "denied", "reason": "no", "question_hash": request["question_hash"], "revision": 1}
    receipt = (await gateway.http.post(url, params={"as": "approver"}, json=sent, headers=headers)).json()
    assert (receipt["status"], receipt["channel"]) == ("accepted", channel)
