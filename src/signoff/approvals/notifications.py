"""Decides which events of a request are sent to people's channels."""

from collections.abc import Callable
from datetime import datetime
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from signoff.approvals.request_state import ENDINGS
from signoff.approvals.request_thread import QUESTIONS, answers_in
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace

RequestEventKind: TypeAlias = Literal["opened", "reminded", "escalated", "put_off", "assigned", "told", "closed"]
"""Events sent to people. Each revision has an `opened`, and a `closed` for any end state. `told`: by the agent."""


_SEPARATOR: Final = "!"
REQUESTER: Final = "requester"
"""The key of `tell` for the person who asked for the call. The other keys are `user:<id>` and `role:<role>`."""
NoticeEvent: TypeAlias = Literal["waiting", "decided", "ran"]
"""Events that a tool's `tell` names."""
NOTICE_EVENTS: Final[tuple[NoticeEvent, ...]] = get_args(NoticeEvent)
NoticeKind: TypeAlias = Literal["waiting", "decided", "ran", "failed", "passkey"]
"""`failed`: the call ran without success. `passkey`: a new passkey of the recipient."""


DELIVERY_TOPICS: Final = (*NOTICE_EVENTS, *map(str, range(QUESTIONS)))
"""The events of notices, and for replaced cards the number of the agent's answers on them; see `notice_topic`."""


class Notice(FrozenModel):
    """A message to a requester, a watcher, or the owner of a passkey. It asks for nothing."""

    kind: NoticeKind
    about: str
    """The approval id, or the id of the passkey."""
    at: datetime
    """The time of the event, in UTC."""
    request: ApprovalRequest | None = None
    """The request at that time. `None` for a passkey."""

    @property
    def event(self) -> str:
        """The event: its outcome does not make it another one."""
        return "ran" if self.kind == "failed" else self.kind

    @property
    def topic(self) -> str:
        """The name that distinguishes it from the request's cards and its other notices."""
        return notice_topic(self.about, self.event)

    @property
    def revision(self) -> int:
        """The decided revision. All revisions of a call share the other notices."""
        return self.request.revision if self.kind == "decided" and self.request is not None else 1


def notice_topic(about: str, event: str) -> str:
    """No approval id contains the separator."""
    return f"{about}{_SEPARATOR}{event}"


def approval_of_topic(topic: str) -> str:
    return topic.partition(_SEPARATOR)[0]


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
        elif after.asked_at is not None and before.asked_at is None:
            events.append(RequestEvent(kind="put_off", request=after))
        if len(after.assignments) > len(before.assignments):
            events.append(RequestEvent(kind="assigned", request=after))
        if answers_in(after.messages) > answers_in(before.messages):
            events.append(RequestEvent(kind="told", request=after))
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
