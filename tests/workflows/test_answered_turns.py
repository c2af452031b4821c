from typing import Any

from temporalio.api.enums.v1 import EventType
from turn_fixtures import ApprovalPolicy, Ledger, RunningTurns, TurnRig, catalog_of, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.contracts.call import CallOutcome
from signoff.contracts.decision import Decision
from signoff.contracts.ids import TurnKey
from signoff.store.tickets import ticket_key
from signoff.testing.scripted_model import calls, respond

SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
ANSWER = {"amount": 12}
PAY = ("pay", {"amount": 420, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]


def tool(ledger: Ledger, **fields: Any) -> Any:
    policy = fields.pop("policy", ApprovalPolicy())
    return pay_tool(ledger, policy, answer_schema=SCHEMA, **fields)


def answered(key: TurnKey, **fields: Any) -> Decision:
    return yes(key, **({"verdict": "answered", "answer": ANSWER} | fields))


async def outcome_of(turns: RunningTurns, key: TurnKey) -> CallOutcome:
    [outcome] = (await turns.signoff.result(key)).calls
    return outcome


async def test_model_reads_a_raw_answer_in_place_of_a_run(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running([tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(answered(key))
        outcome = await outcome_of(turns, key)
        [result] = await turns.results(key)
        question = await turns.question(key)
        ticket = await turns.store.read_ticket(ticket_key(question.digest, 1))
        records = await AuditLog(turns.store).stream(key.workflow_id)
        await turns.replays(key)
    assert (receipt.status, receipt.verdict) == ("accepted", "answered")
    assert (outcome.code, outcome.type, outcome.gate, outcome.decided_by) == (
        "answered", "ToolAnswered", "approval", "approver",
    )  # fmt: skip
    assert result.value.inline == {"type": "ToolAnswered", "answered_by": "Approver", "answer": ANSWER}
    assert result.note == (
        "The tool did not run. Approver answered instead; these are a person's words, not its result."
    )
    assert ledger.rows == []
    assert ticket is not None
    assert (ticket.state, ticket.outcome.code if ticket.outcome else "") == ("done", "answered")
    kinds = [each.kind for each in records]
    assert "execution" not in kinds
    facts = {each.kind: each.facts for each in records}
    assert (facts["outcome"]["code"], facts["ending"]["state"]) == ("answered", "answered")
    assert [each.facts["verdict"] for each in records if each.kind == "attempt"] == ["answered"]


async def test_answered_call_stays_answered_after_a_reset(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running([tool(ledger)], [*SCRIPT, *SCRIPT, *SCRIPT]) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(answered(key))
        await turns.signoff.result(key)
        await turns.reset(key, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        outcome = await outcome_of(turns, key)
    assert (outcome.code, ledger.rows) == ("answered", [])


async def test_answer_that_misses_its_schema_leaves_the_request_open(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running([tool(ledger)], SCRIPT) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(answered(key, answer={"amount": "much"}))
        assert (receipt.status, receipt.code) == ("refused", "malformed")
        assert receipt.message.startswith("`answer.amount` ")
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        outcome = await outcome_of(turns, key)
    assert (outcome.code, len(ledger.rows)) == ("ok", 1)


async def test_raw_answer_of_the_requester_is_refused_where_they_may_approve(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    policy = ApprovalPolicy(allow_self_approval=True, approvers=("user:guest", "role:approvers"))
    async with turn_rig.running([tool(ledger, policy=policy)], SCRIPT) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(answered(key, subject="guest"))
        assert (receipt.status, receipt.code) == ("refused", "self_approval")
        assert (await turns.signoff.decide(yes(key, subject="guest"))).status == "accepted"
        assert (await outcome_of(turns, key)).code == "ok"


async def test_tool_without_an_answer_schema_takes_no_answer(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], SCRIPT) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(answered(key))
        assert (receipt.status, receipt.code, receipt.why) == ("refused", "not_allowed", "no_answer")
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        assert (await outcome_of(turns, key)).code == "ok"


async def test_read_only_tool_is_answered_too(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running(catalog_of([tool(ledger, read_only=True)]), SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(answered(key))
        assert ((await outcome_of(turns, key)).code, ledger.rows) == ("answered", [])
