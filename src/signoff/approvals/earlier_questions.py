"""Reads a turn's earlier questions for what they mean for a call that comes now. Pure rules."""

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
    """Returns the request in which somebody denied this very action, under whatever call of the turn; None without
    one.
    """
    denied = (each for each in requests if each.kind == "approval" and each.state == "denied" and each.tool == tool)
    return next((each for each in denied if _is_about(each, ctx, args)), None)


def is_barred(requests: Iterable[ApprovalRequest], call: str) -> bool:
    """Returns whether no rule and no remembered answer may run `call`, as people are asked about it or did not let it
    run.

    `requests` are every revision, the oldest first. Where the turn gave up an answer that it had, or asks the question
    no longer, the call is judged as one of which nobody was asked.
    """
    asked = [each for each in requests if each.call == call and each.kind == "approval"]
    if not asked:
        return False
    latest = asked[-1]
    if latest.state == "pending":
        # Of a raw message only the turn knows what it said.
        return latest.ended_as is None
    # `lapsed` is said of a yes alone: a turn that says so of what was withdrawn revives nothing.
    withdrawn = latest.state == "cancelled" and latest.ended_as in (None, "lapsed")
    return withdrawn or latest.state in ("denied", "timed_out")


def is_asked_still(request: ApprovalRequest, since: datetime | None = None, spent: int = 0) -> bool:
    """Returns whether a question goes on as it is where its call is judged again, before anybody withdrew it.

    It waits, or its turn has yet to hear of it: then what was answered meanwhile is an answer to that turn, and nobody
    is asked twice. `since` and `spent` as `is_new_to_turn` takes them.
    """
    if request.ended_at is not None:
        return False
    return request.state == "pending" or is_new_to_turn(request, since, spent)


def is_new_to_turn(request: ApprovalRequest, since: datetime | None, spent: int = 0) -> bool:
    """Returns whether a question was asked for a turn that has yet to hear of it: its worker was lost in between.

    It was asked at `since` or later (UTC, the store's clock; never without a time), beyond revision `spent`, the last
    one of which the turn has had the answers.
    """
    return (
        since is not None and request.opened_at is not None and request.opened_at >= since and request.revision > spent
    )


def is_bound_to(requests: Iterable[ApprovalRequest], ctx: CallContext, digest: str, args: Mapping[str, Any]) -> bool:
    """Returns whether people were asked about the call with this digest, with these arguments."""
    return any(each.digest == digest and _is_about(each, ctx, args) for each in requests)


def ending_of(requests: Iterable[ApprovalRequest], digest: str) -> ApprovalRequest | None:
    """Returns the request in which people settled for good that an attempt happened, or that it is given up.

    `digest` is what answers about that try are bound to.
    """
    about = (each for each in requests if each.kind == "in_doubt" and each.digest == digest)
    return next((each for each in about if each.state in ("happened", "denied")), None)


def last_asked(requests: Iterable[ApprovalRequest]) -> Iterable[datetime]:
    """Yields when people were asked and answered, and until when they were or are waited for (UTC)."""
    moments = (at for each in requests for at in (each.opened_at, each.decided_at, each.expires_at))
    return (at for at in moments if at is not None)


def _is_about(request: ApprovalRequest, ctx: CallContext, args: Mapping[str, Any]) -> bool:
    """Returns whether a request of this turn was about these arguments, by computing its digest with them."""
    named = {"call": request.call, "tool": request.tool, "definition": request.definition}
    try:
        # Not `binding.digest_with`, which takes the question's own word for who asked: by the nonce of the turn that
        # asks now, what an earlier turn of the same id was asked, which the server has forgotten, is none of it.
        return digest_in_context(ctx, **named, args=args) == request.digest
    except NotCanonical:
        return False
