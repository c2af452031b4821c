"""Builds the inputs of activities from a turn's state."""

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
    """Return the permit of a call that may run, by rule or because `request` was approved.

    `doubts` are decisions that earlier attempts did not happen. The permit carries only unsigned decisions: the worker
    that runs the call reads the signed ones from the store.
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
    # Omit the id: these decisions belong to the call's own request.
    decisions = tuple(replace(each, approval_id="") for each in _keep_unsigned(approving_decisions(request)))
    return replace(by_rule, kind="approved", revision=request.revision, decisions=decisions)


def _keep_unsigned(decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
    return tuple(each for each in decisions if not (each.signature or each.key_id))


def edit(decision: Decision, editor: Authority) -> dict[str, Any]:
    named = decision if decision.signature else replace(decision, subject=editor.subject)
    # The edit's own delivery identifies its revision, so the time of the question does not matter.
    return {"edit": named, "asked_since": None}
