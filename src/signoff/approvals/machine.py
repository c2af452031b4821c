"""The state machine of approvals: one request, and its next state after each event.

    pending --> approved | denied | answered | timed_out | cancelled
            --> pending            (edited: a new revision, votes void; or the deadline is extended, once)
    approved --> lapsed            (not started within `grant_ttl`; asked again as a new revision)

Questions about an unknown outcome follow the same rules. Their answers are `happened`, approved (run it) and denied.
Functions that change a request return the next one. Other modules decide which events are allowed. No function reads a
clock. For timed events see `deadlines`.
"""

from datetime import datetime, timedelta
from typing import Any

from signoff.approvals import deadlines
from signoff.approvals.quorum import progress
from signoff.contracts.activity_messages import Authority
from signoff.contracts.approval import ApprovalRequest, Question, Settlement, Vote
from signoff.contracts.content import Words
from signoff.contracts.decision import ASSIGNING, Decision
from signoff.contracts.limits import CLOCKS_APART_SECONDS, REASON_CHARS
from signoff.contracts.receipt import Receipt, ReceiptCode, ReceiptReason
from signoff.formats.replace import replace

_SETTLED_CODES: dict[str, ReceiptCode] = {
    "approved": "already_decided",
    "denied": "already_decided",
    "answered": "already_decided",
    "happened": "already_decided",
    "timed_out": "expired",
    "cancelled": "cancelled",
    "lapsed": "stale",
}


def objection(request: ApprovalRequest, decision: Decision, now: datetime) -> Receipt | None:
    """Return why a decision cannot count, as far as known without its author, or `None`.

    Checks in order: kind of question, revision and digest, pending state, deadline, additions. Checks the deadline for
    unsigned decisions only, because the time in a signed one is not verified yet.
    """
    if problem := _find_misfit(request, decision):
        return refusal(request, "malformed", problem)
    if not _names_this(request, decision):
        return stale_receipt(request)
    if request.state != "pending":
        return _too_late(request, decision)
    if not decision.signature and _is_over(request, now):
        return _expired_receipt(request)
    if decision.edited_args is not None and request.edit == "off":
        return refusal(request, "not_allowed", why="edit")
    if decision.remember is not None and not request.allow_remember:
        return refusal(request, "not_allowed", why="remember")
    if lacks_reason(request, decision.verdict, decision.reason):
        return refusal(request, "malformed", why="reason")
    if decision.verdict in ("approved", "answered") and request.preview_required and not has_preview(request):
        return refusal(request, "not_allowed", why="preview")
    if decision.verdict == "answered" and progress(request).needed > 1:
        return refusal(request, "not_allowed", why="several")
    return None


def lacks_reason(request: ApprovalRequest, verdict: str, reason: str) -> bool:
    return verdict == "denied" and request.require_reason and not reason.strip()


def has_preview(question: Question) -> bool:
    """Return whether approvers can see the effect."""
    return question.preview is not None and not question.preview.fault


def examine(request: ApprovalRequest, decision: Decision, authority: Authority, now: datetime) -> Receipt | None:
    """Return why `decision` by the person in `authority` cannot count, or `None`."""
    receipt = objection(request, decision, now)
    if receipt is not None:
        return receipt
    if not authority.allowed:
        return refusal(request, authority.code or "not_allowed", authority.note)
    # Only a time with a verified signature counts. Otherwise use the time of reading the decision.
    return _expired_receipt(request) if _is_over(request, authority.received_at or now) else None


def stale_receipt(request: ApprovalRequest) -> Receipt:
    return refusal(request, "stale")


def settled_receipt(request: ApprovalRequest) -> Receipt:
    """For late decisions. `pending` if the request still waits."""
    return replace(settlement_receipt(request.id, request), **_course(request))


def settlement_receipt(approval_id: str, settled: Settlement) -> Receipt:
    """Return the receipt of a request without the count of its votes. `pending` if it still waits."""
    if settled.state == "pending":
        return Receipt(status="pending", approval_id=approval_id, state="pending")
    return Receipt(
        status="refused",
        code=_SETTLED_CODES[settled.state],
        approval_id=approval_id,
        state=settled.state,
        verdict=settled.state if settled.state in _VERDICTS else "",
        decided_by=settled.decided_by,
        decided_name=settled.decided_name,
        decided_at=settled.decided_at,
        channel=settled.decided_channel,
        reason=settled.reason,
    )


def refusal(
    request: ApprovalRequest,
    code: ReceiptCode,
    message: str = "",
    *,
    why: ReceiptReason = "",
    remarks: tuple[Words, ...] = (),
) -> Receipt:
    """`message` is for developers. People see text for `code` and `why`."""
    return Receipt(
        status="refused",
        code=code,
        approval_id=request.id,
        state=request.state,
        why=why,
        message=message,
        remarks=remarks,
        **_course(request),
    )


def _course(request: ApprovalRequest) -> dict[str, Any]:
    state = progress(request)
    return {"votes": state.yes, "needed": state.needed, "open": state.open if request.state == "pending" else ()}


_VERDICTS = ("approved", "denied", "answered", "happened")


def _find_misfit(request: ApprovalRequest, decision: Decision) -> str:
    if decision.verdict == "withdrawn":
        return "`verdict`: a withdrawal is not a decision; use `cancel`"
    if decision.verdict == "retracted":
        return "`verdict`: only the inbox can undo a denial"
    if decision.verdict in ASSIGNING:
        return "`verdict`: use `reassign` or `add_approver`"
    if decision.verdict == "happened" and request.kind != "in_doubt":
        return "`verdict`: `happened` is only for a call with an unknown outcome"
    if problem := _answer_misfit(request, decision):
        return problem
    if decision.result and decision.verdict != "happened":
        return "`result`: only for the verdict `happened`"
    if len(decision.result) > REASON_CHARS:
        return f"`result`: at most {REASON_CHARS} characters"
    if decision.edited_args is not None and request.kind == "in_doubt":
        return "`edited_args`: a call with an unknown outcome runs again unchanged, or not at all"
    if decision.edited_args is not None and decision.verdict != "approved":
        return "`edited_args`: only an approval can change the arguments"
    if decision.remember is not None and request.kind == "in_doubt":
        return "`remember`: not for a call with an unknown outcome"
    return ""


def _answer_misfit(request: ApprovalRequest, decision: Decision) -> str:
    if decision.verdict != "answered":
        return "" if decision.answer is None else "`answer`: only for the verdict `answered`"
    if request.kind == "in_doubt":
        return "`verdict`: `answered` is not for a call with an unknown outcome"
    if decision.remember is not None:
        return "`remember`: not for an answer instead"
    return "`answer`: missing" if decision.answer is None else ""


def _names_this(request: ApprovalRequest, decision: Decision) -> bool:
    # A decision without a revision can only mean the first one.
    return decision.question_hash in ("", request.question_hash) and (decision.revision or 1) == request.revision


def arrived_late(request: ApprovalRequest, arrived: datetime) -> bool:
    """`arrived` is by the store's clock, because the gateway's may be slow.

    Tolerates small differences between the clocks.
    """
    return _is_over(request, arrived - timedelta(seconds=CLOCKS_APART_SECONDS))


def _is_over(request: ApprovalRequest, moment: datetime) -> bool:
    last = deadlines.last_moment(request)
    return last is not None and moment > last


def _expired_receipt(request: ApprovalRequest) -> Receipt:
    return refusal(request, "expired")


def _too_late(request: ApprovalRequest, decision: Decision) -> Receipt:
    receipt = settled_receipt(request)
    # Anyone can write a time into a raw message.
    received = decision.received_at if decision.signature else None
    if request.state == "timed_out" and received is not None and not _is_over(request, received):
        return replace(receipt, why="late")
    return receipt


def count_vote(request: ApprovalRequest, vote: Vote) -> ApprovalRequest:
    """No change if the request no longer waits, or if the vote adds nothing."""
    if request.state != "pending":
        return request
    if vote.verdict == "withdrawn":
        return _decide(request, vote, "cancelled")
    # One vote for each person and each delegator: neither another channel nor a delegate can add a second one.
    others = tuple(v for v in request.votes if _human(v) != _human(vote) and vote_holder(v) != vote_holder(vote))
    replaced = tuple(v for v in request.votes if v not in others)
    if any(_outweighs(earlier, vote) for earlier in replaced):
        return request
    voted = replace(request, votes=(*others, vote))
    state = _tally_state(voted)
    return voted if state == "pending" else _decide(voted, vote, state)


def assignment_receipt(request: ApprovalRequest, verdict: str, code: ReceiptCode = "") -> Receipt:
    """Return the receipt of a hand-on or an added approver. The request waits for the others."""
    return Receipt(
        status="accepted", code=code, approval_id=request.id, state=request.state, verdict=verdict, **_course(request)
    )


def receipt_after(before: ApprovalRequest, after: ApprovalRequest) -> Receipt:
    if after is before:
        return _counted_receipt(before, "duplicate")
    if after.state == "pending":
        return _counted_receipt(after, "")
    return replace(settled_receipt(after), status="accepted", code="")


def vote_of(decision: Decision, authority: Authority, now: datetime) -> Vote:
    return Vote(
        subject=authority.subject,
        person_id=authority.person_id,
        on_behalf=authority.on_behalf,
        name=authority.name,
        verdict=decision.verdict,
        reason=decision.reason,
        channel=decision.channel,
        assurance=authority.assurance,
        at=now,
        unsigned=authority.unsigned,
        entries=authority.entries,
        decision=replace(decision, subject=authority.subject),
    )


def _decide(request: ApprovalRequest, vote: Vote, state: str) -> ApprovalRequest:
    return replace(
        request,
        state=state,
        decided_by=vote.subject,
        decided_name=_deciders(request, vote),
        decided_at=vote.at,
        decided_channel=vote.channel,
        reason=vote.reason,
    )


def deciding_votes(request: ApprovalRequest) -> tuple[Vote, ...]:
    """In order. Empty if the request waits or no vote decided it."""
    return tuple(vote for vote in request.votes if vote.verdict == request.state)


def _deciders(request: ApprovalRequest, last: Vote) -> str:
    names = [each.name or each.subject for each in request.votes if each.verdict == last.verdict]
    return ", ".join(names) if len(names) > 1 else last.name


def vote_holder(vote: Vote) -> str:
    """Return the person whose vote it is: the delegator, or else the voter."""
    return vote.on_behalf or _human(vote)


def _human(vote: Vote) -> str:
    return vote.person_id or vote.subject


def _outweighs(earlier: Vote, vote: Vote) -> bool:
    """Compares votes by the same person or for the same one.

    People may change their vote, and a delegator may overrule a delegate. A delegate overrules only with a denial.
    """
    if earlier.verdict == vote.verdict:
        return True
    return _human(earlier) != _human(vote) and vote_holder(vote) != _human(vote) and vote.verdict != "denied"


def _tally_state(request: ApprovalRequest) -> str:
    verdicts = [vote.verdict for vote in request.votes]
    denials = verdicts.count("denied")
    if request.kind == "in_doubt" and (denials or "happened" in verdicts):
        # Neither runs anything, so the first decision counts. Running it again takes as many approvals as running it.
        return "denied" if denials else "happened"
    if denials and (request.veto or denials >= request.quorum):
        return "denied"
    state = progress(request)
    if state.yes >= state.needed:
        return "approved"
    # One person answers, and only where one person could approve.
    answered = progress(request, "answered")
    return "answered" if answered.yes >= answered.needed == 1 else "pending"


def _counted_receipt(request: ApprovalRequest, code: ReceiptCode) -> Receipt:
    return Receipt(
        status="counted",
        code=code,
        approval_id=request.id,
        state=request.state,
        **_course(request),
    )
