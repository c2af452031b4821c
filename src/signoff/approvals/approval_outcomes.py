"""Builds the outcomes of calls that need approval: waiting, denied, answered, or happened by a person's word."""

import json
from collections.abc import Mapping
from typing import Any, Final

from signoff.contracts.approval import ApprovalRequest, TurnQuestion
from signoff.contracts.call import CallOutcome, DenialSource, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.ids import show_code
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.turn import Denial, WaitingCall
from signoff.formats.visible_text import one_line

ANSWERED_NOTE: Final = "The tool did not run. {who} answered instead; these are a person's words, not its result."
"""The note before the answer, for the model."""
HAPPENED_TEXT: Final = "It happened."
HAPPENED_NOTE: Final = "The tool did not answer; a person says that this happened."
_NAME_CHARS: Final = 80
_SOURCES: Final[Mapping[str, DenialSource]] = {"denied": "human", "timed_out": "timeout", "cancelled": "cancelled"}
_REASONS: Final[Mapping[str, str]] = {
    "timed_out": "Nobody answered in time.",
    "cancelled": "The request was withdrawn.",
}


def waiting_outcome(call: str, tool: str, asked: WaitingCall) -> CallOutcome:
    return CallOutcome(
        call=call,
        tool=tool,
        code="waiting",
        gate="approval",
        value=Content(inline=f"waiting for approval, {show_code(asked.code)}"),
        approval_id=asked.approval_id,
    )


def late_result(outcome: CallOutcome, code: str) -> ResultPart:
    """Return the second and last result of a call that the model knows is waiting."""
    # Leave out the provider's id: providers accept only one result for a call, so this one is sent as text.
    waited = f"which waited for approval, {show_code(code)}"
    remark = f"Outcome of {outcome.call} (`{outcome.tool}`), {waited}: {outcome.type}."
    return ResultPart(
        call=outcome.call,
        tool=outcome.tool,
        code=outcome.code,
        value=outcome.value,
        note=" ".join(filter(None, (remark, outcome.note))),
        late=True,
    )


def outcome_message(outcome: CallOutcome, code: str) -> Message:
    """Tells a session the outcome of a call after its turn has ended."""
    part = late_result(outcome, code)
    value = part.value
    if value.blob is None and not isinstance(value.inline, str):
        value = Content(inline=json.dumps(value.inline, ensure_ascii=False))
    return Message(role="user", parts=(TextPart(text=Content(inline=part.note)), TextPart(text=value)))


def denied_outcome(request: TurnQuestion) -> CallOutcome:
    refusal = ToolDenied(
        source=_SOURCES[request.state],
        approval_id=request.id,
        tool=request.tool,
        call_id=request.call,
        decided_by=request.decided_by,
        reason=request.reason or _REASONS.get(request.state, ""),
        decided_at=request.decided_at,
        level=request.level,
    )
    return CallOutcome(
        call=request.call,
        tool=request.tool,
        code="denied",
        gate="approval",
        value=Content(inline=refusal.for_model()),
        approval_id=request.id,
        decided_by=request.decided_by,
        rule=request.rule,
        denied=refusal,
    )


def denial_from_request(request: ApprovalRequest | TurnQuestion, action: str) -> Denial:
    """Record a denial, so that the same `action` is not asked again."""
    return Denial(
        action=action,
        approval_id=request.id,
        decided_by=request.decided_by,
        reason=request.reason,
        decided_at=request.decided_at,
        level=request.level,
    )


def repeated_outcome(earlier: Denial, call: str, tool: str) -> CallOutcome:
    denied = repeated_denial(earlier, call, tool)
    value = Content(inline=denied.for_model())
    return CallOutcome(call=call, tool=tool, code="denied", gate="approval", value=value, denied=denied)


def repeated_denial(earlier: Denial, call: str, tool: str) -> ToolDenied:
    return ToolDenied(
        source="repeat",
        approval_id=earlier.approval_id,
        tool=tool,
        call_id=call,
        decided_by=earlier.decided_by,
        reason=earlier.reason,
        decided_at=earlier.decided_at,
        level=earlier.level,
    )


def answered_outcome(call: str, tool: str, name: str, answer: Content, word: Decision) -> CallOutcome:
    """A person's answer instead of a run. Marked as such: it is no result of the tool."""
    return CallOutcome(
        call=call,
        tool=tool,
        code="answered",
        gate="approval",
        value=answer,
        approval_id=word.approval_id,
        decided_by=word.subject,
        note=ANSWERED_NOTE.format(who=one_line(name, _NAME_CHARS).text or "A person"),
    )


def answer_for_model(name: str, word: Decision) -> dict[str, Any]:
    """Return the answer as a JSON object, which no text within it can leave."""
    said = {"type": "ToolAnswered", "answered_by": one_line(name, _NAME_CHARS).text, "answer": word.answer}
    return {**said, "remark": word.reason} if word.reason.strip() else said


def happened_outcome(call: str, tool: str, word: Decision) -> CallOutcome:
    """The decision's text is the result, marked as a person's."""
    return CallOutcome(
        call=call,
        tool=tool,
        code="ok",
        gate="execute",
        value=Content(inline=word.result or HAPPENED_TEXT),
        approval_id=word.approval_id,
        decided_by=word.subject,
        note=HAPPENED_NOTE,
    )
