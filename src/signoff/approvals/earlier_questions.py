"""Applies a turn's earlier questions to a new call. Pure rules."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from signoff.approvals.digest import digest_in_context
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallContext
from signoff.contracts.canonical_json import NotCanonical


def denial_of(
    requests: Iterable[ApprovalRequest], ctx: CallContext, tool: str, args: Mapping[str, Any]
) -> ApprovalRequest | None:
    """The request may belong to any call of the turn."""
    denied = (each for each in requests if each.kind == "approval" and each.state == "denied" and each.tool == tool)
    return next((each for each in denied if _is_about(each, ctx, args)), None)


def is_barred(requests: Iterable[ApprovalRequest], call: str) -> bool:
    """True while approvers decide `call`, and after they did not approve it: no rule and no grant may run it.

    `requests` contains all revisions, oldest first. If the turn gave up an approval or no longer asks the question,
    approvers count as never asked.
    """
    asked = [each for each in requests if each.call == call and each.kind == "approval"]
    if not asked:
        return False
    latest = asked[-1]
    if latest.state == "pending":
        # Only the turn knows the content of a raw message.
        return latest.ended_as is None
    # `lapsed` applies to approvals only: a turn that reports it for a withdrawn request revives nothing.
    withdrawn = latest.state == "cancelled" and latest.ended_as in (None, "lapsed")
    return withdrawn or latest.state in ("denied", "answered", "timed_out")


def is_asked_still(request: ApprovalRequest, since: datetime | None = None, spent: int = 0) -> bool:
    """Return whether a question stays open when its call is judged again.

    False after a withdrawal. True if it waits, or if its turn has not yet learned of it. Decisions made in between are
    for that turn, and no approver is asked twice. `since` and `spent` are as in `is_new_to_turn`.
    """
    if request.ended_at is not None:
        return False
    return request.state == "pending" or is_new_to_turn(request, since, spent)


def is_new_to_turn(request: ApprovalRequest, since: datetime | None, spent: int = 0) -> bool:
    """Return whether the turn has not yet learned of a question because its worker was lost.

    True if it was opened at `since` or later (UTC, store's clock, never without a time) and its revision exceeds
    `spent`, the last one whose decisions the turn has.
    """
    return (
        since is not None and request.opened_at is not None and request.opened_at >= since and request.revision > spent
    )


def is_bound_to(requests: Iterable[ApprovalRequest], ctx: CallContext, digest: str, args: Mapping[str, Any]) -> bool:
    return any(each.digest == digest and _is_about(each, ctx, args) for each in requests)


def ending_of(requests: Iterable[ApprovalRequest], digest: str) -> ApprovalRequest | None:
    """Return the request that settled an attempt as happened or given up.

    `digest` is that of questions about the attempt.
    """
    about = (each for each in requests if each.kind == "in_doubt" and each.digest == digest)
    return next((each for each in about if each.state in ("happened", "denied")), None)


def last_asked(requests: Iterable[ApprovalRequest]) -> Iterable[datetime]:
    """Yield the times of questions, decisions and deadlines (UTC)."""
    moments = (at for each in requests for at in (each.opened_at, each.decided_at, each.expires_at))
    return (at for at in moments if at is not None)


def _is_about(request: ApprovalRequest, ctx: CallContext, args: Mapping[str, Any]) -> bool:
    named = {"call": request.call, "tool": request.tool, "definition": request.definition}
    try:
        # Use this turn's nonce instead of `binding.digest_with`, which trusts the question: an earlier turn with the
        # same id, forgotten by the server, must not match.
        return digest_in_context(ctx, **named, args=args) == request.digest
    except NotCanonical:
        return False
