"""Makes the outcome of a call that people did not let run."""

from collections.abc import Mapping
from typing import Final

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome, DenialSource, ToolDenied
from signoff.contracts.content import Content
from signoff.contracts.turn import Denial

_SOURCES: Final[Mapping[str, DenialSource]] = {"denied": "human", "timed_out": "timeout", "cancelled": "cancelled"}
_REASONS: Final[Mapping[str, str]] = {
    "timed_out": "Nobody answered in time.",
    "cancelled": "The request was withdrawn.",
}


def denied_outcome(request: ApprovalRequest) -> CallOutcome:
    """Makes the outcome of a call whose request ended in anything but an approval."""
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


def denial_from_request(request: ApprovalRequest, action: str) -> Denial:
    """Converts a request that a person denied to a record by which the same `action` is not asked again."""
    return Denial(
        action=action,
        approval_id=request.id,
        decided_by=request.decided_by,
        reason=request.reason,
        decided_at=request.decided_at,
        level=request.level,
    )


def repeated_outcome(earlier: Denial, call: str, tool: str) -> CallOutcome:
    """Makes the outcome of a call that is the same as one a person denied."""
    denied = repeated_denial(earlier, call, tool)
    value = Content(inline=denied.for_model())
    return CallOutcome(call=call, tool=tool, code="denied", gate="approval", value=value, denied=denied)


def repeated_denial(earlier: Denial, call: str, tool: str) -> ToolDenied:
    """Returns the denial of a call that is the same as one a person denied; names that decision."""
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
