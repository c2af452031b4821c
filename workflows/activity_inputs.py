"""What the turn hands to its activities, made from what it knows."""

from signoff.approvals.machine import approving
from signoff.contracts.activity_messages import Authority, GateTask, Ruling
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import Permit, Pinned
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart


def permit(
    ctx: Pinned,
    call: CallPart,
    ruling: Ruling,
    request: ApprovalRequest | None,
    doubts: tuple[Decision, ...] = (),
) -> Permit:
    """The permit of a call that may run: by rule, or with the decisions that approve `request`.

    `doubts` are the answers that earlier tries of it did not happen.
    """
    by_rule = Permit(
        kind="auto",
        call=call.call,
        digest=ruling.digest,
        ctx=ctx,
        rule=ruling.rule,
        policy_hash=ruling.policy_hash,
        doubts=doubts,
        grant=ruling.grant,
        override=ruling.override,
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


def edited(base: GateTask, call: CallPart, request: ApprovalRequest, decision: Decision, editor: Authority) -> GateTask:
    """The question what the gates say of `call`, which is that of `request` with the arguments of `decision`."""
    return base.model_copy(
        update={
            "calls": (call,),
            # What a change makes is told apart by its own delivery, whenever it was asked.
            "asked_since": None,
            "edit": decision if decision.signature else decision.model_copy(update={"subject": editor.subject}),
        }
    )


def doubt(base: GateTask, call: CallPart, ruling: Ruling, ticket: int) -> GateTask:
    """The question how to ask people what became of `call` under its ticket of that number."""
    return base.model_copy(update={"calls": (call,), "doubt": ticket, "doubt_of": ruling.digest})
