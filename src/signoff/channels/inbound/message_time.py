"""Determines the time of a message that counts: the earlier of writing and arrival.

A vendor may deliver a message days late, and words can only answer a request that had reached their author by then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from signoff.channels.envelopes import InboundAction
from signoff.contracts.approval import ApprovalRequest
from signoff.store.inbound_queue import InboundRow

HELD: Final = "held"
"""The mark in an arrival's note: its hold has ended when it is claimed again."""
SAID: Final = "said_at"
"""The time of writing in the result of a message that led to a question back."""
CHANGES: Final = "changes"
"""The key of the edited or deleted message in the result of a change."""
_UNCLEAR: Final = ("asked", "question", "unreadable", "failed")
"""The results of messages that may have been meant to retract an approval."""
_BEFORE_DEADLINE: Final = timedelta(seconds=1)

SLACK: Final = timedelta(seconds=2)
"""A card counts as sent this long before its first attempt: vendors' times are in whole seconds, by their clocks."""
AHEAD: Final = timedelta(minutes=5)
"""A time further ahead of the arrival is implausible."""
OLDEST: Final = timedelta(days=30)
"""A time further before the arrival is implausible: vendors retry for up to 7 days."""


@dataclass(frozen=True)
class MessageTime:
    """The times of one message, in UTC."""

    arrived: datetime
    """When the message arrived, by the store's clock."""
    said: datetime | None
    """When its author wrote it, never after `arrived`. `None` without a plausible time."""


def time_of_message(said_at: datetime | None, arrived: datetime) -> MessageTime:
    if said_at is None or not arrived - OLDEST <= said_at <= arrived + AHEAD:
        return MessageTime(arrived, None)
    return MessageTime(arrived, min(said_at, arrived))


def hold_seconds(hold: float, request: ApprovalRequest, now: datetime) -> float:
    """Return the seconds for which an approval in words is held, or 0 if the deadline leaves no time for that."""
    if request.expires_at is None:
        return hold
    left = (request.expires_at - _BEFORE_DEADLINE - now).total_seconds()
    return max(0.0, min(hold, left))


def later_actions(
    row: InboundRow, action: InboundAction, others: Sequence[InboundRow]
) -> tuple[list[tuple[InboundRow, InboundAction]], bool]:
    """Return the later messages that were not read yet, and whether any other makes the approval doubtful.

    A later message that decided nothing or cannot be read does so, and any edit or deletion of the approval, but no
    question about another request. A message is later if it was written later. The arrival decides if a time of writing
    is unknown or both are equal.
    """
    waiting: list[tuple[InboundRow, InboundAction]] = []
    is_doubtful = False
    own = time_of_message(action.said_at, row.received_at)
    approval = ((row.about or {}).get("request") or {}).get("id")
    for other in others:
        if other.state != "new":
            result = other.result or {}
            said = datetime.fromisoformat(result[SAID]) if SAID in result else None
            is_later = _is_later(time_of_message(said, other.received_at), own)
            is_about_it = result.get("approval", approval) == approval
            is_unclear = result.get("what") in _UNCLEAR and is_about_it and is_later
            is_doubtful = is_doubtful or is_unclear or result.get(CHANGES) == action.key
            continue
        try:
            written = InboundAction.model_validate_json(other.body)
        except ValidationError:
            # It may retract the approval.
            is_doubtful = is_doubtful or _is_later(MessageTime(other.received_at, None), own)
            continue
        if written.changes == action.key:
            is_doubtful = True
        if _is_later(time_of_message(written.said_at, other.received_at), own):
            waiting.append((other, written))
    return waiting, is_doubtful


def is_held(about: Mapping[str, Any] | None) -> bool:
    return about is not None and HELD in about


def _is_later(other: MessageTime, own: MessageTime) -> bool:
    if other.said is None or own.said is None or other.said == own.said:
        return other.arrived >= own.arrived
    return other.said > own.said
