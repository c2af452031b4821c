"""What the turn hands to its activities, made from what it knows."""

from signoff.approvals.machine import approving
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import Permit, Pinned
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.steps import IdentifyTask, Ruling


def permit(ctx: Pinned, call: CallPart, ruling: Ruling, request: ApprovalRequest | None) -> Permit:
    """The permit of a call that may run: by rule, or with the decisions that approve `request`."""
    by_rule = Permit(
        kind="auto",
        call=call.call,
        digest=ruling.digest,
        ctx=ctx,
        rule=ruling.rule,
        policy_hash=ruling.policy_hash,
        grant=ruling.grant,
    )
    if request is None:
        return by_rule
    return by_rule.model_copy(
        update={
            "kind": "approved",
            "approval_id": request.id,
            "revision": request.revision,
            "quorum": request.quorum,
            "decisions": approving(request),
        }
    )


def identify(decision: Decision, request: ApprovalRequest) -> IdentifyTask:
    """The question who answered `request`, and whether they may."""
    return IdentifyTask(
        decision=decision,
        tenant=request.tenant,
        approvers=request.approvers,
        requester=request.requester.user,
        allow_self=request.allow_self,
        min_assurance=request.min_assurance,
        accept_unsigned=request.accept_unsigned,
        request=request if decision.remember is not None else None,
    )
