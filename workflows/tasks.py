"""What the turn hands to its activities, made from what it knows."""

from typing import Final

from signoff.approvals.machine import approving, seat
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import Permit, Pinned
from signoff.contracts.decision import Decision
from signoff.contracts.message import CallPart
from signoff.contracts.steps import Authority, GateTask, IdentifyTask, Ruling

_OPERATORS: Final = "role:admin"


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
        seats=tuple(dict.fromkeys(seat(vote) for vote in request.votes)),
        request=request if decision.remember is not None else None,
    )


def withdrawer(wish: Decision, request: ApprovalRequest) -> IdentifyTask:
    """The question who wishes to withdraw `request`: who asked, who may decide, or an administrator."""
    asker = f"user:{request.requester.user}"
    return IdentifyTask(
        decision=wish,
        tenant=request.tenant,
        approvers=(*request.approvers, asker, _OPERATORS),
        requester=request.requester.user,
        # Taking a question back lets nothing happen: whoever asked may, however they signed in, but not unsigned.
        allow_self=True,
        min_assurance="none",
        accept_unsigned=False,
    )


def edited(base: GateTask, call: CallPart, request: ApprovalRequest, editor: Authority) -> GateTask:
    """The question what the gates say of `call`, which is that of `request` with other arguments."""
    return base.model_copy(
        update={
            "calls": (call,),
            "revision": request.revision + 1,
            "note": f"{editor.name or editor.subject} changed the arguments",
            "edited_by": editor.subject,
            "edited_name": editor.name,
            "before": request.card.rows,
        }
    )


def doubt(base: GateTask, call: CallPart, ruling: Ruling, ticket: int, revision: int) -> GateTask:
    """The question how to ask people what became of `call` under its ticket of that number."""
    return base.model_copy(update={"calls": (call,), "revision": revision, "doubt": ticket, "doubt_of": ruling.digest})
