import asyncio
import json
import uuid
from datetime import timedelta

import pytest
from aap_rig import Adapter, asking
from agentapprovalprotocol import Allow, Call, ConflictError, Deny, NotFound
from call_rig import approval_of
from gateway_login import bearer
from gateway_rig import BASE

from signoff.contracts.responses import CallAnswer
from signoff.gateway.calls import call_wait
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.external_turn import ExternalTurn


def call(body: dict, **fields: object) -> Call:
    return Call(key=uuid.uuid4().hex, tool=body["tool"], arguments=body["arguments"], **fields)


async def test_request_waits_and_is_approved_used_and_reported(coder: Adapter) -> None:
    words = {"agent_reasoning": "charged twice", "context": {"session_id": "s-1", "ratio": 0.1, "none": None}}
    body, key = asking(**words), uuid.uuid4().hex
    asked = await coder.ask(body, key)
    assert (asked.status, asked.decision, asked.agent_reasoning) == ("pending", None, "charged twice")
    assert (asked.deadline_at - asked.created_at).total_seconds() == 600
    assert await coder.ask(body, key) == asked
    name = await coder.call_about(str(asked.arguments["order"]))
    request = await coder.agent.rig.request(approval_of(name))
    # The agent's reasoning is shown as such; its adapter's context has no effect.
    assert (request.agent_says, request.actor, request.requester.user) == ("charged twice", "coder", "guest")
    assert request.expires_at is not None
    assert request.expires_at < asked.deadline_at + timedelta(minutes=1)
    assert (await coder.client.get(asked.id)).status == "pending"
    await coder.decide(asked.arguments, reason="go on")
    found = await coder.client.get(asked.id)
    assert found.status == "approved"
    assert found.decision is not None
    assert found.consumption is None
    assert found.decision.note == "go on"
    assert found.decision.expires_at is not None
    used = await coder.client.consume(asked.id, "use-1")
    assert used.consumption is not None
    assert used.consumption.outcome is None
    assert await coder.client.consume(asked.id, "use-1") == used
    with pytest.raises(ConflictError, match="already_consumed"):
        await coder.client.consume(asked.id, "use-2")
    done = await coder.client.report_outcome(asked.id, "succeeded", "refunded")
    assert done.consumption is not None
    assert done.consumption.outcome is not None
    assert (done.consumption.outcome.status, done.consumption.outcome.note) == ("succeeded", "refunded")
    assert await coder.client.report_outcome(asked.id, "succeeded", "refunded") == done
    with pytest.raises(ConflictError, match="outcome_conflict"):
        await coder.client.report_outcome(asked.id, "failed")
    assert (await coder.client.get(asked.id), await coder.client.consume(asked.id, "use-1")) == (done, done)
    ended = await coder.agent.show(name)
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "ok", "refunded")
    assert ended["decided_by"] == "Approver"


async def test_approval_is_shown_only_after_its_turn_has_it(coder: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has it earlier. Shown then, it could not be used, and edited arguments would be asked about again."""
    for changes in ({}, {"euro": 150}):
        asked = await coder.ask(asking())
        written = asked.arguments | changes
        await coder.decide(asked.arguments, **({"edited_args": written} if changes else {}))

        async def before(deps: GatewayDeps, turn: ExternalTurn) -> CallAnswer:
            return CallAnswer(id=turn.name, state="waiting", tool=turn.call.tool)

        with monkeypatch.context() as earlier:
            earlier.setattr(call_wait, "read_call", before)
            assert (await coder.client.get(asked.id)).status == "pending"
        told = await coder.client.get(asked.id)
        assert told.status == ("denied" if changes else "approved")
        again = await coder.ask(asking() | {"arguments": written})
        assert again.status == ("approved" if changes else "pending")


async def test_gate_runs_approved_calls_only(coder: Adapter) -> None:
    yes, no, gate = asking(), asking(), coder.gate()
    allowed, denied, _, _ = await asyncio.gather(
        gate.check(call(yes)), gate.check(call(no)),
        coder.decide(yes["arguments"]), coder.decide(no["arguments"], verdict="denied", reason="not this month"),
    )  # fmt: skip
    assert isinstance(allowed, Allow)
    assert await allowed.report("failed", "the bank is closed") is True
    assert isinstance(denied, Deny)
    assert denied.status == "denied"
    assert "not this month" in denied.reason
    small, large = await gate.check(call(asking(20))), await gate.check(call(asking(2_000)))
    assert isinstance(small, Allow)
    assert await small.report("succeeded") is True
    assert isinstance(large, Deny)
    assert "`deny_if` is true" in large.reason
    unknown = await gate.check(call(asking(tool="refnd")))
    assert isinstance(unknown, Deny)
    assert unknown.status == "denied"


async def test_withdrawn_request_is_cancelled(coder: Adapter) -> None:
    asked = await coder.ask(asking())
    name = await coder.call_about(str(asked.arguments["order"]))
    gone = await coder.client.cancel(asked.id)
    assert gone.status == "cancelled"
    assert (await coder.client.cancel(asked.id), await coder.client.get(asked.id)) == (gone, gone)
    assert (await coder.agent.rig.request(approval_of(name))).state == "cancelled"
    with pytest.raises(ConflictError, match="not_approved"):
        await coder.client.consume(asked.id, "use-1")
    allowed = await coder.allowed()
    with pytest.raises(ConflictError, match="already_terminal"):
        await coder.client.cancel(allowed.id)
    with pytest.raises(NotFound):
        await coder.client.get(str(uuid.uuid4()))


async def test_edited_request_is_denied_and_runs_once_with_the_edit(coder: Adapter) -> None:
    asked = await coder.ask(asking())
    changed = {"order": asked.arguments["order"], "euro": 150}
    name = await coder.decide(asked.arguments, edited_args=changed)
    found = await coder.client.get(asked.id)
    assert found.status == "denied"
    assert found.decision is not None
    assert json.dumps(changed) in str(found.decision.note)
    with pytest.raises(ConflictError, match="not_approved"):
        await coder.client.consume(asked.id, "use-1")
    body = asking() | {"arguments": changed, "agent_reasoning": "as Ana wrote it"}
    again = await coder.ask(body, "edited-1")
    assert (again.status, again.id == asked.id, again.agent_reasoning) == ("approved", False, "as Ana wrote it")
    assert await coder.ask(body, "edited-1") == again
    # The edit covers one call: another request with the same arguments asks approvers.
    other = await coder.ask(body, "edited-2")
    assert other.status == "pending"
    used = await coder.client.consume(again.id, "use-1")
    assert used.consumption is not None
    assert (await coder.client.report_outcome(again.id, "succeeded")).consumption is not None
    assert ((await coder.agent.show(name))["state"], (await coder.client.get(asked.id)).status) == ("ended", "denied")
    assert (await coder.ask(body, "edited-3")).status == "pending"
    with pytest.raises(ConflictError, match="not_consumed"):
        await coder.client.report_outcome(asked.id, "succeeded")


async def test_one_of_several_requests_with_edited_arguments_is_approved(coder: Adapter) -> None:
    asked = await coder.ask(asking())
    changed = {"order": asked.arguments["order"], "euro": 150}
    await coder.decide(asked.arguments, edited_args=changed)
    assert (await coder.client.get(asked.id)).status == "denied"
    body = asking() | {"arguments": changed}
    found = await asyncio.gather(*(coder.ask(body) for _ in range(5)))
    assert sorted(each.status for each in found) == ["approved", *["pending"] * 4]
    await asyncio.gather(*(coder.client.cancel(each.id) for each in found if each.status == "pending"))


async def test_one_of_ten_racing_uses_gets_the_approval(coder: Adapter) -> None:
    asked = await coder.allowed()
    assert asked.status == "approved"
    keys = [f"use-{number % 5}" for number in range(10)]
    found = await asyncio.gather(*(coder.client.consume(asked.id, key) for key in keys), return_exceptions=True)
    won = [key for key, each in zip(keys, found, strict=True) if not isinstance(each, Exception)]
    assert (len(won), len(set(won))) == (2, 1)
    assert {each.code for each in found if isinstance(each, ConflictError)} == {"already_consumed"}


async def test_unanswered_request_expires(coder: Adapter) -> None:
    for body in (asking(timeout="1s"), asking(tool="brief", timeout="1h")):
        asked = await coder.ask(body)
        assert (asked.deadline_at - asked.created_at).total_seconds() == 1
        found = await coder.until_settled(asked)
        assert found.status == "expired"
        assert found.decision is not None
        assert found.decision.expires_at is None
        assert await coder.client.get(asked.id) == found
        with pytest.raises(ConflictError, match="not_approved"):
            await coder.client.consume(asked.id, "use-1")
        with pytest.raises(ConflictError, match="already_terminal"):
            await coder.client.cancel(asked.id)


async def test_key_belongs_to_one_request(coder: Adapter) -> None:
    body, key = asking(20), uuid.uuid4().hex
    first = await coder.ask(body, key)
    assert (await coder.ask(body | {"arguments": body["arguments"] | {"euro": 20.0}}, key)).id == first.id
    for other in ({"timeout": "11m"}, {"context": {"x": 1}}, {"agent_reasoning": "hm"}, {"tool": "quick"}):
        with pytest.raises(ConflictError, match="idempotency_conflict"):
            await coder.ask(body | other, key)


async def test_conflict_names_the_adapters_key(coder: Adapter) -> None:
    key = uuid.uuid4().hex
    await coder.ask(asking(20), key)
    headers = bearer(coder.token) | {"idempotency-key": key}
    refused = await coder.http.post(f"{BASE}{coder.base}/v1/requests", json=asking(21), headers=headers)
    assert (refused.status_code, f"`{key}`" in refused.json()["error"]["message"]) == (409, True), refused.text


async def test_call_of_a_server_has_its_qualified_name(coder: Adapter) -> None:
    asked = await coder.allowed(server="bank")
    assert (asked.status, asked.server, asked.tool) == ("denied", "bank", "refund")
    assert asked.decision is not None
    assert "mcp__bank__refund" in str(asked.decision.note)


async def test_tool_run_by_signoff_is_refused(coder: Adapter) -> None:
    """An approved call would run twice: in Signoff and in the agent."""
    body = {"tool": "pay", "arguments": {"amount": 20, "to": "Ana"}, "timeout": "1m"}
    before = list(coder.agent.rig.ledger.rows)
    assert await coder.send("POST", "", body, idempotency_key="pay-1") == (400, "run_by_signoff")
    assert coder.agent.rig.ledger.rows == before
