from datetime import UTC, datetime
from typing import Any

import pytest
from some import some
from turn_fixtures import ApprovalPolicy, Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.policy.handler_verdict import HandlerCall, HandlerVerdict
from signoff.testing.questions import answer
from signoff.testing.scripted_model import calls, respond

RULE = "handler:test_turns_with_handlers:limit"
SAYS: dict[str, Any] = {}


async def limit(call: HandlerCall, context: dict[str, Any]) -> Any:
    """Return the entry of `SAYS` for the payee; a list is consumed except for its last entry."""
    payee = call.args["to"]
    answer = SAYS[payee]
    if isinstance(answer, list):
        return answer.pop(0) if len(answer) > 1 else answer[0]
    return answer


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SAYS.clear()


def script(*payees: str) -> list[Any]:
    return [calls(*(("pay", {"amount": 20, "to": payee}) for payee in payees)), respond("done")]


def handled(ledger: Ledger, **fields: Any) -> Any:
    return catalog_of([pay_tool(ledger, ApprovalPolicy(handler="test_turns_with_handlers:limit", **fields))])


@pytest.mark.row("B71")
async def test_each_call_follows_its_handlers_verdict(turn_rig: TurnRig, ledger: Ledger) -> None:
    SAYS.update(
        Ana="auto", Bo=HandlerVerdict("ask", reason="a new payee"), Cy=HandlerVerdict("deny", reason="a blocked payee")
    )
    async with turn_rig.running(handled(ledger), script("Ana", "Bo", "Cy")) as turns:
        key = await turns.start_waiting()
        request = await turns.question(key, "c1.2")
        result = await turns.result_after(yes(key, "c1.2"))
        records = await AuditLog(turn_rig.store).stream(key.workflow_id)
    assert (request.rule.label, request.rule_text) == (RULE, "ask: a new payee")
    assert [(each.code, each.rule.label) for each in result.calls] == [("ok", RULE), ("ok", RULE), ("denied", RULE)]
    assert result.calls[2].denied is not None
    assert (result.calls[2].denied.source, result.calls[2].denied.reason) == ("policy", "a blocked payee")
    assert sorted(row[1]["to"] for row in ledger.rows) == ["Ana", "Bo"]
    named = {record.kind for record in records if RULE.removeprefix("handler:") in record.data}
    assert {"auto", "request", "verdict", "execution"} <= named


async def test_handler_that_asks_before_the_run_needs_one_approval(turn_rig: TurnRig, ledger: Ledger) -> None:
    SAYS.update(Ana=["auto", "ask"])
    async with turn_rig.running(handled(ledger), script("Ana")) as turns:
        key = await turns.start()
        request = some((await turns.waiting(key)).calls[0].approval)
        assert (request.revision, request.rule.label, ledger.rows) == (1, RULE, [])
        result = await turns.result_after(yes(key))
    assert [outcome.code for outcome in result.calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_handler_may_deny_an_approved_call(turn_rig: TurnRig, ledger: Ledger) -> None:
    SAYS.update(Ana=["ask", "deny"])
    async with turn_rig.running(handled(ledger), script("Ana")) as turns:
        key = await turns.start_waiting()
        result = await turns.result_after(yes(key))
    assert [(outcome.code, outcome.rule.label) for outcome in result.calls] == [("denied", RULE)]
    assert ledger.rows == []


async def test_failing_handler_asks_an_approver_and_the_turn_continues(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = handled(ledger, auto_approve_if="true")
    async with turn_rig.running(catalog, script("Ana")) as turns:
        key = await turns.start_waiting()
        request = await turns.question(key)
        assert request.rule.label == f"{RULE} (failed)"
        assert request.rule_text == "ask: `handler` failed (KeyError), so the call needs approval"
        await turns.signoff.decide(yes(key))
        assert [outcome.code for outcome in (await turns.signoff.result(key)).calls] == ["ok"]
    assert len(ledger.rows) == 1


async def test_grant_for_a_rule_does_not_satisfy_a_handler(turn_rig: TurnRig, ledger: Ledger) -> None:
    SAYS.update(Ana=["auto", "auto", "ask", "ask", "auto", "auto"])
    catalog = handled(ledger, require_approval_if="true", allow_remember=True)
    replies = [*script("Ana")]
    async with turn_rig.running(catalog, replies) as turns:
        first = await turns.start()
        await turns.waiting(first)
        remember = {"scope": "tenant", "seconds": 3_600, "uses": 5}
        # As through the gateway, which alone stores grants and stamps the time of an answer.
        decision = yes(first, remember=remember, received_at=datetime.now(UTC))
        await answer(turn_rig.store, decision)
        await turns.signoff.decide(decision)
        assert [each.rule.label for each in (await turns.signoff.result(first)).calls] == ["require_approval_if"]
        second = await turns.start()
        request = some((await turns.waiting(second)).calls[0].approval)
        await turns.signoff.decide(yes(second))
        await turns.signoff.result(second)
        third = await turns.start()
        (outcome,) = (await turns.signoff.result(third)).calls
    assert request.rule.label == f"require_approval_if, {RULE}"
    assert outcome.rule.kind == "grant"
    assert len(ledger.rows) == 3
