"""Builds the tasks that identify the author of a decision and check the permission."""

from typing import Final

from signoff.approvals.machine import vote_holder
from signoff.approvals.quorum import progress
from signoff.contracts.activity_messages import IdentifyTask
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.decision import Decision

_OPERATORS: Final = "role:admin"


def identify_task(decision: Decision, request: ApprovalRequest) -> IdentifyTask:
    return IdentifyTask(
        decision=decision,
        tenant=request.tenant,
        approvers=request.approvers,
        requester=request.requester.user,
        allow_self=request.allow_self,
        min_assurance=request.min_assurance,
        accept_unsigned=request.accept_unsigned,
        proposers=request.proposers,
        seats=tuple(dict.fromkeys(vote_holder(vote) for vote in request.votes)),
        groups=request.groups,
        wanted=tuple(dict.fromkeys(entry for group in progress(request).open for entry in group.of)),
        requester_person=request.requester.person_id,
    )


def withdrawal_task(wish: Decision, request: ApprovalRequest) -> IdentifyTask:
    """The requester, an approver or an administrator may withdraw."""
    asker = f"user:{request.requester.user}"
    return IdentifyTask(
        decision=wish,
        tenant=request.tenant,
        approvers=(*request.approvers, asker, _OPERATORS),
        requester=request.requester.user,
        # A withdrawal makes nothing happen. The requester may withdraw with any sign-in, but not unsigned.
        allow_self=True,
        min_assurance="none",
        accept_unsigned=False,
    )
