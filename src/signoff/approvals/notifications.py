"""Decides which events of a request are sent to its approvers' channels."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from signoff.approvals.request_state import ENDINGS
from signoff.contracts.approval import ApprovalRequest
from signoff.formats.replace import replace

RequestEventKind: TypeAlias = Literal["opened", "reminded", "escalated", "assigned", "closed"]
"""Events sent to people. Each revision has an `opened`, and a `closed` for any end state."""


class RequestEvent(NamedTuple):
    """One event for a request's approvers."""

    kind: RequestEventKind
    request: ApprovalRequest
    """The request in its present or its end state."""


_ENDING = (
    *("state", "votes", "decided_by", "decided_name", "decided_at", "decided_channel", "reason"),
    *("edited_by", "edited_name"),
)
"""The fields that describe a request's end, including an edit that settled it."""


def names_channel(request: ApprovalRequest) -> bool:
    return bool(request.notify)


def events_between(
    before: ApprovalRequest | None,
    after: ApprovalRequest,
    now: datetime,
    is_sent: Callable[[ApprovalRequest], bool] = names_channel,
) -> tuple[RequestEvent, ...]:
    """Leaves out events of requests that no channel or room shows, by `is_sent`.

    Each revision is opened and closed once. The closed one is the revision that people saw.
    """
    if not is_sent(after) and (before is None or not is_sent(before)):
        return ()
    events: list[RequestEvent] = []
    waited = before is not None and before.state == "pending"
    same = before is not None and before.revision == after.revision
    if before is not None and waited and not (same and after.state == "pending"):
        events.append(RequestEvent(kind="closed", request=_close(before, after, now)))
    if after.state == "pending" and not (waited and same):
        events.append(RequestEvent(kind="opened", request=after))
    if before is not None and waited and same and after.state == "pending":
        if after.reminded > before.reminded:
            events.append(RequestEvent(kind="reminded", request=after))
        if _escalations(after) > _escalations(before):
            events.append(RequestEvent(kind="escalated", request=after))
        if len(after.assignments) > len(before.assignments):
            events.append(RequestEvent(kind="assigned", request=after))
    return tuple(each for each in events if is_sent(each.request))


def _escalations(request: ApprovalRequest) -> int:
    return request.escalated + request.extended


def _close(before: ApprovalRequest, after: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """Return `before` in its end state: that of `after`, or replaced by it if it waits again."""
    if after.state != "pending":
        ending = dict(after)
        return replace(before, **{name: ending[name] for name in _ENDING})
    reason = after.card.note or ENDINGS["superseded"]
    return replace(
        before,
        state="cancelled",
        decided_by=after.edited_by,
        decided_name=after.edited_name,
        decided_at=now,
        reason=reason,
    )
