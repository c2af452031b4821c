"""Decides which events of a request its approvers get on their channels."""

from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace

RequestEventKind: TypeAlias = Literal["opened", "reminded", "escalated", "closed"]
"""What people are told of a request; `opened` also of each new revision, `closed` however it ended."""


class RequestEvent(NamedTuple):
    """One event for a request's approvers."""

    kind: RequestEventKind
    """What happened."""
    request: ApprovalRequest
    """The request in its present state, or as it ended."""


_ENDING = (
    *("state", "votes", "decided_by", "decided_name", "decided_at", "decided_channel", "reason"),
    *("edited_by", "edited_name"),
)
"""The fields that say how a request ended; an edit that settles it is part of that."""


def events_between(before: ApprovalRequest | None, after: ApprovalRequest, now: datetime) -> tuple[RequestEvent, ...]:
    """Returns the events between `before`, if there was one, and `after`; none where no channel is named.

    Each revision is opened and closed once, whatever else happens. The closed revision is the one that people saw.
    """
    if not after.notify and (before is None or not before.notify):
        return ()
    found: list[RequestEvent] = []
    waited = before is not None and before.state == "pending"
    same = before is not None and before.revision == after.revision
    if before is not None and waited and not (same and after.state == "pending"):
        found.append(RequestEvent(kind="closed", request=_close(before, after, now)))
    if after.state == "pending" and not (waited and same):
        found.append(RequestEvent(kind="opened", request=after))
    if before is not None and waited and same and after.state == "pending":
        if after.reminded > before.reminded:
            found.append(RequestEvent(kind="reminded", request=after))
        if _escalations(after) > _escalations(before):
            found.append(RequestEvent(kind="escalated", request=after))
    return tuple(each for each in found if each.request.notify)


def _escalations(request: ApprovalRequest) -> int:
    return request.escalated + request.extended


def _close(before: ApprovalRequest, after: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """Returns `before` as it ended: as `after` did, or replaced by it where that waits again."""
    if after.state != "pending":
        ending = dict(after)
        return replace(before, **{name: ending[name] for name in _ENDING})
    reason = after.card.note or "This is asked again."
    return replace(
        before,
        state="cancelled",
        decided_by=after.edited_by,
        decided_name=after.edited_name,
        decided_at=now,
        reason=reason,
    )
