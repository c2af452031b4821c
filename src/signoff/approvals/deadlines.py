"""Computes reminder, escalation and deadline of a request, as absolute times. Every function takes the time in."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from signoff.contracts.approval import ApprovalRequest, ApproverGroup
from signoff.formats.replace import replace

Happening: TypeAlias = Literal["remind", "escalate", "deadline"]


class DueEvent(NamedTuple):
    """The next event that time alone brings to a waiting request."""

    at: datetime
    """When, in UTC."""
    what: Happening
    """What happens."""


def open_request(request: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """Opens `request` at `now`, with the absolute times that follow from its spans."""
    return replace(
        request,
        state="pending",
        opened_at=now,
        expires_at=_after(now, request.timeout),
        remind_at=() if request.remind_after is None else (_after(now, request.remind_after),),
        escalate_at=None if request.escalate_after is None else _after(now, request.escalate_after),
    )


def advance(request: ApprovalRequest, until: datetime) -> ApprovalRequest:
    """Applies to `request` everything that time alone brings up to `until`, deadline included."""
    while (coming := next_event(request)) is not None and coming.at < until:
        request = apply_event(request, coming, coming.at)
    return request


def list_events(request: ApprovalRequest, until: datetime) -> list[tuple[DueEvent, ApprovalRequest]]:
    """Lists what time alone brought to `request`, as it was opened, up to `until`: each with the request after it."""
    found: list[tuple[DueEvent, ApprovalRequest]] = []
    while (coming := next_event(request)) is not None and coming.at < until:
        request = apply_event(request, coming, coming.at)
        found.append((coming, request))
    return found


def next_event(request: ApprovalRequest) -> DueEvent | None:
    """Returns the next event that time alone brings; None for a request that does not wait. A deadline comes last."""
    if request.state != "pending" or request.expires_at is None:
        return None
    coming = [DueEvent(at, "remind") for at in request.remind_at[request.reminded :]]
    if request.escalate_at is not None and not request.escalated:
        coming.append(DueEvent(request.escalate_at, "escalate"))
    # Of several at one moment the first stands: `min` keeps the order.
    return min((*coming, DueEvent(request.expires_at, "deadline")), key=lambda each: each.at)


def apply_event(request: ApprovalRequest, happening: DueEvent, now: datetime) -> ApprovalRequest:
    """Applies `happening` to `request`, its time having come; unchanged when the request waits for it no longer."""
    # An answer or an edit may lie between the timer and now: what it was set for is then not due any more.
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
    """Returns the approvers asked before an escalation; an entry of both lists is no longer among them."""
    if not request.escalated:
        return request.approvers
    return tuple(each for each in request.approvers if each not in request.escalate_to)


def escalate(request: ApprovalRequest) -> ApprovalRequest:
    """Lets `escalate_to` decide a pending request too; any other is returned as it is."""
    if request.state != "pending" or request.escalated:
        return request
    everybody = tuple(dict.fromkeys((*request.approvers, *request.escalate_to)))
    # They stand in for whoever was silent, so they fill any place that is open.
    groups = escalated_groups(request.groups, request.escalate_to)
    return replace(request, approvers=everybody, groups=groups, escalated=True)


def escalated_groups(groups: Sequence[ApproverGroup], to: Sequence[str]) -> tuple[ApproverGroup, ...]:
    """Returns `groups` where those to whom a request escalates may fill a place of each."""
    return tuple(replace(group, of=tuple(dict.fromkeys((*group.of, *to)))) for group in groups)


def expire(request: ApprovalRequest, now: datetime) -> ApprovalRequest:
    """Times out a pending request whose deadline passed, or escalates it and puts it off by `timeout`, once.

    Any other is returned as it is.
    """
    if request.state != "pending":
        return request
    if _may_be_put_off(request):
        # From the deadline, not from `now`: answers up to that moment count already, by `last_moment`.
        return replace(escalate(request), expires_at=last_moment(request), extended=True)
    return replace(request, state="timed_out", decided_at=now)


def last_moment(request: ApprovalRequest) -> datetime | None:
    """Returns the last moment at which an answer counts; None while the deadline is still to be put off."""
    if request.expires_at is None or not _may_be_put_off(request):
        return request.expires_at
    return _after(request.expires_at, request.timeout)


def _may_be_put_off(request: ApprovalRequest) -> bool:
    return request.on_timeout == "escalate" and not request.extended


def _after(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)
