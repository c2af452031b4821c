"""Makes what a model is told of a call that people are asked about while its turn goes on."""

import json

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.ids import show_code
from signoff.contracts.message import Message, ResultPart, TextPart
from signoff.contracts.turn import WaitingCall


def waiting_outcome(call: str, tool: str, asked: WaitingCall) -> CallOutcome:
    """Makes the outcome of a call while people decide it, or of one that does the same as the call that they decide."""
    return CallOutcome(
        call=call,
        tool=tool,
        code="waiting",
        gate="approval",
        value=Content(inline=f"waiting for approval, {show_code(asked.code)}"),
        approval_id=asked.approval_id,
    )


def late_result(outcome: CallOutcome, code: str) -> ResultPart:
    """Makes the second and last result of a call of which the model was told that it waits, by its request's code."""
    # No id of the provider's: of one call providers take one result, and this is told in words.
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
    """Makes the words in which a session is told what became of a call over which a turn has ended."""
    part = late_result(outcome, code)
    value = part.value
    if value.blob is None and not isinstance(value.inline, str):
        value = Content(inline=json.dumps(value.inline, ensure_ascii=False))
    return Message(role="user", parts=(TextPart(text=Content(inline=part.note)), TextPart(text=value)))
