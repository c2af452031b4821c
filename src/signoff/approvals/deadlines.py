"""Computes reminder, escalation and deadline of a request as absolute times.

Every function takes the time as a parameter.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from signoff.contracts.approval import ApprovalRequest, ApproverGroup, Timed
from signoff.contracts.limits import QUESTION_SECONDS
from signoff.formats.replace import replace

_TimedT = TypeVar("_TimedT", bound=Timed)
Happening: TypeAlias = Literal["remind", "escalate", "deadline"]


class DueEvent(NamedTuple):
    """The next timed event of a waiting request."""

    at: datetime
    """The time, in UTC."""
    what: Happening


def open_request(request: _TimedT, now: datetime) -> _TimedT:
    return replace(
        request,
        state="pending",
        opened_at=now,
        expires_at=_after(now, request.timeout),
        remind_at=() if request.remind_after is None else (_after(now, request.remind_after),),
        escalate_at=None if request.escalate_after is None else _after(now, request.escalate_after),
    )


def put_off(request: _TimedT, asked_at: datetime | None) -> _TimedT:
    """Move the deadline for an approver's question to the agent. `None` moves nothing, and a second call no further.

    A request that escalates at its deadline has that one extension instead.
    """
    if asked_at is None or request.opened_at is None or request.on_timeout == "escalate":
        return request
    first = _after(request.opened_at, request.timeout)
    # A worker could insert a question with a time after its deadline.
    gained = min(QUESTION_SECONDS - max((first - asked_at).total_seconds(), 0.0), request.timeout)
    return replace(request, expires_at=_after(first, gained)) if gained > 0 else request


def advance(request: _TimedT, until: datetime) -> _TimedT:
    """Apply all events before `until`, including the deadline."""
    while (coming := next_event(request)) is not None and coming.at < until:
        request = apply_event(request, coming, coming.at)
    return request


def list_events(request: ApprovalRequest, until: datetime) -> list[tuple[DueEvent, ApprovalRequest]]:
    """Each event comes with the changed request. `request` is in its state when opened."""
    events: list[tuple[DueEvent, ApprovalRequest]] = []
    while (coming := next_event(request)) is not None and coming.at < until:
        request = apply_event(request, coming, coming.at)
        events.append((coming, request))
    return events


def next_event(request: Timed) -> DueEvent | None:
    """The deadline is the last moment. `None` if the request does not wait."""
    if request.state != "pending" or request.expires_at is None:
        return None
    coming = [DueEvent(at, "remind") for at in request.remind_at[request.reminded :]]
    if request.escalate_at is not None and not request.escalated:
        coming.append(DueEvent(request.escalate_at, "escalate"))
    # Of several events at the same time, the first in this order wins: `min` keeps the order.
    return min((*coming, DueEvent(request.expires_at, "deadline")), key=lambda each: each.at)


def apply_event(request: _TimedT, happening: DueEvent, now: datetime) -> _TimedT:
    """No effect if the request no longer waits for `happening`."""
    # A decision or an edit may have arrived since the timer was set. Then its event is no longer due.
    if next_event(request) != happening:
        return request
    match happening.what:
        case "remind":
            return replace(request, reminded=request.reminded + 1)
        case "escalate":
            return escalate(request)
        case "deadline":
            return expire(request, now)


def first_approvers(request: ApprovalRequest) -> tuple[str, ...]:
    """Return the approvers before the escalation, except those also in `escalate_to`."""
    if not request.escalated:
        return request.approvers
    return tuple(each for each in request.approvers if each not in request.escalate_to)


def escalate(request: _TimedT) -> _TimedT:
    """Allow `escalate_to` to decide. Only a pending request changes."""
    if request.state != "pending" or request.escalated:
        return request
    everybody = tuple(dict.fromkeys((*request.approvers, *request.escalate_to)))
    # They replace approvers who did not respond, so they count for any open place.
    groups = escalated_groups(request.groups, request.escalate_to)
    return replace(request, approvers=everybody, groups=groups, escalated=True)


def escalated_groups(groups: Sequence[ApproverGroup], to: Sequence[str]) -> tuple[ApproverGroup, ...]:
    """Return `groups` in which the approvers `to` may also fill the places."""
    return tuple(replace(group, of=tuple(dict.fromkeys((*group.of, *to)))) for group in groups)


def expire(request: _TimedT, now: datetime) -> _TimedT:
    """Time out a pending request, or escalate and extend it once by `timeout`. Others do not change."""
    if request.state != "pending":
        return request
    if _may_be_put_off(request):
        # Extend from the deadline instead of `now`: decisions up to the new time already count, by `last_moment`.
        return replace(escalate(request), expires_at=last_moment(request), extended=True)
    return replace(request, state="timed_out", decided_at=now)


def is_final(request: Timed) -> bool:
    """Return whether the next deadline ends a pending request."""
    return not _may_be_put_off(request)


def last_moment(request: Timed) -> datetime | None:
    """Includes a possible extension. `None` without a deadline."""
    if request.expires_at is None or not _may_be_put_off(request):
        return request.expires_at
    return _after(request.expires_at, request.timeout)


def _may_be_put_off(request: Timed) -> bool:
    return request.on_timeout == "escalate" and not request.extended


def _after(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
