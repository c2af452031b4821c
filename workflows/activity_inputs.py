"""Makes the inputs of activities from a turn's state."""

from typing import Any

from signoff.approvals.machine import approving_decisions
from signoff.contracts.activity_messages import Authority, GateDecision
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext, Permit
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace


def permit(
    ctx: CallContext,
    call: CallPart,
    gate_decision: GateDecision,
    request: ApprovalRequest | None,
    doubts: tuple[Decision, ...] = (),
) -> Permit:
    """Returns the permit of a call that may run: by rule, or as people approved in `request`.

    `doubts` are the answers that earlier tries of it did not happen. Of answers only those go with it that nobody
    signed: all others are read from the store where the call runs.
    """
    by_rule = Permit(
        kind="auto",
        call=call.call,
        digest=gate_decision.digest,
        ctx=ctx,
        doubts=_keep_unsigned(doubts),
        grant=gate_decision.grant,
        override=gate_decision.override,
    )
    if request is None:
        return by_rule
    # Their request is that of the call: its id is left out.
    given = tuple(replace(each, approval_id="") for each in _keep_unsigned(approving_decisions(request)))
    return replace(by_rule, kind="approved", revision=request.revision, decisions=given)


def _keep_unsigned(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    return tuple(each for each in decisions if not (each.signature or each.key_id))


def edit(decision: Decision, editor: Authority) -> dict[str, Any]:
    """Makes the fields of the gates' task for a change of arguments by `decision`, beside the changed call."""
    named = decision if decision.signature else replace(decision, subject=editor.subject)
    # What a change makes is told apart by its own delivery, whenever it was asked.
    return {"edit": named, "asked_since": None}
