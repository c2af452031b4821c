"""Builds the outcome of a call from a person's decision about its unknown outcome."""

from typing import Final

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision

HAPPENED_TEXT: Final = "It happened."
HAPPENED_NOTE: Final = "The tool did not answer; a person says that this happened."


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
