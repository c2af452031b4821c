from datetime import UTC, datetime
from typing import Any

import pytest
from evaluation_kit import a_catalog, a_tool
from some import some
from tables import table

from signoff.approvals.redaction import HIDDEN
from signoff.contracts.activity_messages import (
    GateDecision,
    GateReply,
    ModelReply,
    ModelTask,
    Response,
)
from signoff.contracts.approval import Terms, TurnQuestion
from signoff.contracts.call import CallContext, CallOutcome, Place, RuleReference, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.errors import Refused
from signoff.contracts.message import CallPart, Message, ResultPart, TextPart, user_message
from signoff.contracts.names import ENGINE
from signoff.contracts.person import Principal
from signoff.contracts.turn import ResponsePart, TurnInput, TurnResult
from signoff.evaluation.case_file import EvaluationCase, RecordedCall, read_cases, write_cases
from signoff.evaluation.case_player import find_misfits, play
from signoff.evaluation.case_recorder import case_from_history
from signoff.evaluation.turn_history import HistoryStep, TurnHistory
from signoff.formats.replace import replace

AT = datetime(2026, 11, 24, 10, tzinfo=UTC)
GUEST = Principal(user="guest", name="Guest", tier="trusted", nonce="n0nce", signature="sign3d", key_id="k1")
CATALOG = a_catalog(a_tool(secrets=("pin",)))


def part(call: str = "c1.1", **args: Any) -> CallPart:
    return CallPart(call=call, tool="pay", args=Content(inline={"amount": 20, **args}))


def outcome(code: Any = "ok", value: Any = "paid", **fields: Any) -> CallOutcome:
    return CallOutcome(**{"call": "c1.1", "tool": "pay", "code": code, "value": Content(inline=value), **fields})


def denied(source: Any, reason: str = "no", **fields: Any) -> CallOutcome:
    refusal = ToolDenied(source=source, tool="pay", call_id="c1.1", decided_by="ana", reason=reason)
    return outcome("denied", {"code": "denied"}, denied=refusal, **{"gate": "approval", **fields})


def case_of(
    *outcomes: CallOutcome, gate_decision: GateDecision | None = None, call: CallPart | None = None, **fields: Any
) -> EvaluationCase:
    given = TurnInput(
        engine=ENGINE,
        session_id="s1",
        turn_id="t1",
        actor="desk",
        messages=fields.pop("messages", (user_message("pay Ana"),)),
        principal=GUEST,
    )
    ctx = CallContext(actor="desk", session="s1", turn="t1", user=GUEST)
    words = TextPart(text=Content(inline=fields.pop("says", "")))
    first = ModelReply(
        message=Message(role="assistant", parts=(words, call or part())),
        catalog="c" * 16,
        instructions="i" * 16,
        gates=None if gate_decision is None else GateReply(gate_decisions=(gate_decision,)),
    )
    results = fields.pop("results", ())
    last_messages = (*given.messages, first.message, *((Message(role="tool", parts=results),) if results else ()))
    last = ModelReply(message=Message(role="assistant"), response=Response(text=Content(inline="done")))
    steps = (
        HistoryStep(ModelTask(ctx=ctx, completion=1, messages=given.messages), first, AT),
        HistoryStep(ModelTask(ctx=ctx, completion=2, messages=last_messages), last, AT),
    )
    answer = ResponsePart(content=Content(inline=fields.pop("answer", "done")))
    result = TurnResult(state="complete", parts=(answer,), calls=outcomes)
    return case_from_history(TurnHistory(given, steps, result), CATALOG, fields.pop("specialists", None))


def call_of(case: EvaluationCase) -> RecordedCall:
    [call] = case.completions[0].calls
    return call


def recorded_verdict(gate_decision: GateDecision | None, *outcomes: CallOutcome) -> tuple[str, str, str]:
    call = call_of(case_of(*outcomes, gate_decision=gate_decision))
    return call.verdict, call.gate, "" if call.decision is None else f"{call.decision.verdict} by {call.decision.by}"


def ruled(kind: Any, **fields: Any) -> GateDecision:
    return GateDecision(call="c1.1", kind=kind, rule=RuleReference(name="auto_approve_if"), **fields)


APPROVED = outcome(decided_by="ana", approval_id="main.s1.t1.c1.1")


@table(
    ("gate_decision", "ended", "recorded"),
    (ruled("run"), outcome(), ("run", "", "")),
    (ruled("run"), outcome("execution_failed", gate="execute"), ("run", "", "")),
    (ruled("ask"), APPROVED, ("ask", "", "approved by ana")),
    (ruled("ask"), denied("human"), ("ask", "", "denied by ana")),
    (ruled("ask"), denied("timeout"), ("ask", "", "timed_out by ana")),
    (ruled("ask"), denied("cancelled"), ("ask", "", "cancelled by ana")),
    (ruled("ask"), outcome("skipped", gate="execute"), ("ask", "", "")),
    (ruled("run", grant="g1"), outcome(), ("ask", "", "approved by ")),
    (ruled("settled", outcome=denied("repeat")), denied("repeat"), ("ask", "", "denied by ana")),
    (ruled("settled", outcome=denied("policy")), denied("policy"), ("deny", "approval", "")),
    (
        ruled("settled", outcome=outcome("input_invalid", gate="schema")),
        outcome("input_invalid", gate="schema"),
        ("input_invalid", "schema", ""),
    ),
    # If the gates ran apart from the completion, only the outcome shows their decision.
    (None, outcome(), ("run", "", "")),
    (None, outcome("execution_failed", gate="execute"), ("run", "", "")),
    (None, APPROVED, ("ask", "", "approved by ana")),
    (None, denied("human"), ("ask", "", "denied by ana")),
    (None, denied("policy", gate="tag_policy"), ("deny", "tag_policy", "")),
    (None, outcome("not_available", gate="resolve"), ("not_available", "resolve", "")),
    (None, outcome(gate="dry_run"), ("dry_run", "dry_run", "")),
)
def test_outcome_of_a_call_is_recorded(
    gate_decision: GateDecision | None, ended: CallOutcome, recorded: tuple[str, str, str]
) -> None:
    assert recorded_verdict(gate_decision, ended) == recorded


def test_approvers_of_a_call_are_recorded() -> None:
    question = TurnQuestion(question_hash="h", effect="Pay", approvers=("role:finance",), quorum=2)
    call = call_of(case_of(APPROVED, gate_decision=ruled("ask", question=question)))
    assert call.terms == Terms(approvers=("role:finance",), quorum=2)
    assert call.rule == RuleReference(name="auto_approve_if")


def test_case_holds_its_turn_but_no_signature_of_the_requester() -> None:
    case = case_of(outcome(), says="Ana is owed this.")
    assert (case.recorded.turn, case.recorded.catalog, case.recorded.instructions) == (
        "turn/main/s1/t1",
        "c" * 16,
        "i" * 16,
    )
    assert (case.name, case.user.user, case.user.tier, case.ending, case.answer) == (
        "pay Ana",
        "guest",
        "trusted",
        "complete",
        "done",
    )
    assert (case.completions[0].text, case.completions[0].judged_at) == ("Ana is owed this.", AT)
    written = write_cases([case])
    assert not [secret for secret in ("n0nce", "sign3d", "k1") if secret in written]


def test_secrets_are_hidden_in_every_field_of_a_case() -> None:
    pin = "4711-secret"
    case = case_of(
        outcome(),
        call=part(pin=pin),
        says=f"with {pin}",
        answer=f"used {pin}",
        messages=(user_message(f"pay with {pin}"),),
        results=(ResultPart(call="c1.1", tool="pay", code="ok", value=Content(inline=f"paid with {pin}"), note=pin),),
    )
    written = write_cases([case])
    assert pin not in written
    assert call_of(case).args == {"amount": 20, "pin": HIDDEN}
    assert written.count(HIDDEN) == 7


def test_recorded_result_is_the_one_the_model_read() -> None:
    parts = (ResultPart(call="c1.1", tool="pay", code="ok", value=Content(inline="heard"), note="changed"),)
    old = (ResultPart(call="c1.1", tool="pay", code="ok", value=Content(inline="old")),)
    earlier = (user_message("first"), Message(role="assistant", parts=(part(),)), Message(role="tool", parts=old))
    result = some(call_of(case_of(outcome(value="cut"), results=parts)).result)
    assert (result.value, result.note) == ("heard", "changed")
    case = case_of(outcome(value="mine"), messages=(*earlier, user_message("then")))
    mine, theirs = call_of(case).result, case.messages[1].calls[0].result
    assert mine is not None
    assert theirs is not None
    assert (mine.value, theirs.value) == ("mine", "old")
    assert [message.role for message in case.messages] == ["user", "assistant", "user"]


@pytest.mark.row("B41")
def test_specialist_answer_is_taken_from_the_audit_log() -> None:
    result = some(call_of(case_of(outcome(value="said"), specialists={"c1.1": "recorded"})).result)
    assert result.value == "recorded"


def test_turn_that_has_not_ended_is_refused() -> None:
    given = TurnInput(engine=ENGINE, session_id="s1", turn_id="t1", actor="desk", messages=(), principal=GUEST)
    with pytest.raises(Refused, match="has not ended"):
        case_from_history(TurnHistory(given, (), None), CATALOG)


async def test_recorded_case_can_be_played(tmp_path: Any) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(write_cases([case_of(outcome(), gate_decision=ruled("run"), call=part(pin="4711-secret"))]))
    [[placed], problems] = read_cases(path)
    assert (problems, find_misfits(placed.case, CATALOG)) == ([], [])
    [call] = (await play(placed.case, CATALOG)).calls
    assert (call.verdict, call.answered) == ("run", "record")


def test_calls_are_recorded_at_the_step_of_their_turn() -> None:
    given = TurnInput(
        engine=ENGINE, session_id="s1", turn_id="t1", actor="desk", messages=(), principal=GUEST, route="trip"
    )
    ctx = CallContext(actor="desk", session="s1", turn="t1", user=GUEST, route="trip")
    message = Message(role="assistant", parts=(part(),))
    places = [Place(actor="desk", route="trip", step=step) if step else None for step in ("ask", "", "buy")]
    at = (ctx, replace(ctx, step="ask"), replace(ctx, step="ask"))
    steps = tuple(
        HistoryStep(ModelTask(ctx=each, completion=number, messages=()), ModelReply(message=message, place=place), AT)
        for number, (each, place) in enumerate(zip(at, places, strict=True), 1)
    )
    case = case_from_history(TurnHistory(given, steps, TurnResult(state="complete")), CATALOG)
    assert (case.route, case.step, [each.step for each in case.completions]) == ("trip", "ask", [None, None, "buy"])
    assert [case.ctx(number).step for number in (1, 2, 3, 4)] == ["ask", "ask", "buy", "buy"]
