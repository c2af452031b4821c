"""The approval state machine: one request, and what each event makes of it.

    pending --> approved | denied | timed_out | cancelled
    approved --> lapsed            (not started within `grant_ttl`; asked again as a new revision)

Every function takes a request and returns the next one; none reads a clock.
"""

from datetime import datetime, timedelta

from signoff.contracts.approval import ApprovalRequest, Vote
from signoff.contracts.decision import Decision
from signoff.contracts.receipt import Receipt, ReceiptCode
from signoff.contracts.steps import Authority

_SETTLED_CODES: dict[str, ReceiptCode] = {
    "approved": "already_decided",
    "denied": "already_decided",
    "timed_out": "expired",
    "cancelled": "cancelled",
    "lapsed": "stale",
}


def opened(request: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """`request` as it begins to wait at `now`."""
    return request.model_copy(
        update={"state": "pending", "opened_at": now, "expires_at": now + timedelta(seconds=request.timeout)}
    )


def objection(request: ApprovalRequest, decision: Decision, now: datetime) -> Receipt | None:
    """Why `decision` cannot count, as far as that is known without its author; None when it may.

    Checked in this order: it is bound to this revision and digest, the request is still pending, the deadline.
    """
    if decision.edited_args is not None:
        return refusal(request, "malformed", "arguments cannot be edited in this version; deny and say what to change")
    if not _names_this(request, decision):
        return refusal(
            request, "stale", f"this was asked again; open it once more and answer revision {request.revision}"
        )
    if request.state != "pending":
        return settled_receipt(request)
    if request.expires_at is not None and _moment(decision, now) > request.expires_at:
        return refusal(request, "expired", "the time to answer is over")
    return None


def decided(
    request: ApprovalRequest, decision: Decision, authority: Authority, now: datetime
) -> tuple[ApprovalRequest, Receipt]:
    """Count `decision` by the person `authority` vouches for.

    A refused one returns `request` unchanged. Quorum counts distinct people; one denial ends it when `veto`.
    """
    receipt = objection(request, decision, now)
    if receipt is not None:
        return request, receipt
    if not authority.allowed:
        return request, refusal(request, authority.code or "not_allowed", _REFUSAL_TEXT[authority.code])
    vote = _vote(decision, authority, now)
    if any(v.subject == vote.subject and v.verdict == vote.verdict for v in request.votes):
        return request, _counted(request, "duplicate", "your answer is already counted")
    kept = tuple(v for v in request.votes if v.subject != vote.subject)
    voted = request.model_copy(update={"votes": (*kept, vote)})
    state = _tallied(voted)
    if state == "pending":
        return voted, _counted(voted, "", "your answer is counted; others are still asked")
    final = voted.model_copy(
        update={
            "state": state,
            "decided_by": vote.subject,
            "decided_name": vote.name,
            "decided_at": now,
            "decided_channel": vote.channel,
            "reason": vote.reason,
        }
    )
    return final, settled_receipt(final).model_copy(update={"status": "accepted", "code": "", "message": ""})


def expired(request: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """A pending request whose deadline passed; any other is returned as it is."""
    if request.state != "pending":
        return request
    return request.model_copy(update={"state": "timed_out", "decided_at": now})


def cancelled(request: ApprovalRequest, by: str, reason: str, now: datetime) -> ApprovalRequest:
    """A pending request withdrawn by `by`; any other is returned as it is."""
    if request.state != "pending":
        return request
    return request.model_copy(update={"state": "cancelled", "decided_by": by, "decided_at": now, "reason": reason})


def lapsed(request: ApprovalRequest) -> ApprovalRequest:
    """An approval that was not used: too late, or the tool changed; any other is returned as it is."""
    return request.model_copy(update={"state": "lapsed"}) if request.state == "approved" else request


def approving(request: ApprovalRequest) -> tuple[Decision, ...]:
    """The decisions that approve this revision of `request`, each by another person."""
    return tuple(vote.decision for vote in request.votes if vote.verdict == "approved")


def settled_receipt(request: ApprovalRequest) -> Receipt:
    """What someone is told who asks about, or answers, a request that is decided; `pending` while it is not."""
    if request.state == "pending":
        return _counted(request, "", "waiting for an answer").model_copy(update={"status": "pending"})
    return Receipt(
        status="refused",
        code=_SETTLED_CODES[request.state],
        approval_id=request.id,
        state=request.state,
        verdict=request.state if request.state in ("approved", "denied") else "",
        decided_by=request.decided_by,
        decided_name=request.decided_name,
        decided_at=request.decided_at,
        channel=request.decided_channel,
        reason=request.reason,
        votes=len(approving(request)),
        needed=request.quorum,
        message=_SETTLED_TEXT[request.state],
    )


def refusal(request: ApprovalRequest, code: ReceiptCode, message: str) -> Receipt:
    """A receipt that changes nothing."""
    return Receipt(
        status="refused",
        code=code,
        approval_id=request.id,
        state=request.state,
        votes=len(approving(request)),
        needed=request.quorum,
        message=message,
    )


_SETTLED_TEXT = {
    "approved": "this was already approved",
    "denied": "this was already denied",
    "timed_out": "nobody answered in time, so this was denied",
    "cancelled": "this was withdrawn",
    "lapsed": "this approval was not used in time and is asked again",
}
_REFUSAL_TEXT: dict[str, str] = {
    "": "you may not decide this",
    "not_allowed": "you may not decide this",
    "self_approval": "you asked for this yourself; someone else has to decide",
    "assurance": "this needs a stronger sign-in than the one you used",
    "unavailable": "who you are cannot be checked right now; nothing was changed, try again",
}


def _names_this(request: ApprovalRequest, decision: Decision) -> bool:
    if decision.digest and decision.digest != request.digest:
        return False
    if decision.revision is None:
        # An answer that names no revision can only have meant the first one.
        return request.revision == 1
    return decision.revision == request.revision


def _moment(decision: Decision, now: datetime) -> datetime:
    # Anyone can write a time into an unsigned decision, so only a signed one's counts.
    return decision.received_at if decision.signature and decision.received_at is not None else now


def _vote(decision: Decision, authority: Authority, now: datetime) -> Vote:
    return Vote(
        subject=authority.subject,
        name=authority.name,
        verdict=decision.verdict,
        reason=decision.reason,
        channel=decision.channel,
        assurance=authority.assurance,
        at=now,
        unsigned=authority.unsigned,
        decision=decision.model_copy(update={"subject": authority.subject}),
    )


def _tallied(request: ApprovalRequest) -> str:
    denials = sum(vote.verdict == "denied" for vote in request.votes)
    if denials and (request.veto or denials >= request.quorum):
        return "denied"
    return "approved" if len(approving(request)) >= request.quorum else "pending"


def _counted(request: ApprovalRequest, code: ReceiptCode, message: str) -> Receipt:
    return Receipt(
        status="counted",
        code=code,
        approval_id=request.id,
        state=request.state,
        votes=len(approving(request)),
        needed=request.quorum,
        message=message,
    )
