"""Decides how long an approval in words waits, and whether later words of its author take it back."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from signoff.channels.envelopes import InboundAction
from signoff.channels.inbound.message_time import MessageTime, time_of_message
from signoff.contracts.approval import ApprovalRequest
from signoff.store.inbound_queue import InboundRow

HELD: Final = "held"
"""The mark in an arrival's note: its hold is over when it is claimed again."""
SAID: Final = "said_at"
"""The time of writing in the result of a message that was asked back."""
BEFORE_DEADLINE: Final = timedelta(seconds=1)


def hold_seconds(hold: float, request: ApprovalRequest, now: datetime) -> float:
    """Return for how many seconds an approval in words is held; 0 where its deadline leaves no time for that."""
    if request.expires_at is None:
        return hold
    left = (request.expires_at - BEFORE_DEADLINE - now).total_seconds()
    return max(0.0, min(hold, left))


def later_actions(
    row: InboundRow, action: InboundAction, others: Sequence[InboundRow]
) -> tuple[list[tuple[InboundRow, InboundAction]], bool]:
    """Return the later messages that were not read yet, and whether a later one that was read decided nothing.

    A message is later if it was written later. The arrival decides where a time of writing is unknown, and between two
    messages of one moment.
    """
    waiting: list[tuple[InboundRow, InboundAction]] = []
    asked_back = False
    own = time_of_message(action.said_at, row.received_at)
    for other in others:
        if other.state != "new":
            result = other.result or {}
            said = datetime.fromisoformat(result[SAID]) if SAID in result else None
            is_later = _is_later(time_of_message(said, other.received_at), own)
            asked_back = asked_back or (result.get("what") == "asked" and is_later)
            continue
        try:
            written = InboundAction.model_validate_json(other.body)
        except ValidationError:
            continue
        if _is_later(time_of_message(written.said_at, other.received_at), own):
            waiting.append((other, written))
    return waiting, asked_back


def is_held(about: Mapping[str, Any] | None) -> bool:
    """Return whether an arrival was held already."""
    return about is not None and HELD in about


def _is_later(other: MessageTime, own: MessageTime) -> bool:
    if other.said is None or own.said is None or other.said == own.said:
        return other.arrived >= own.arrived
    return other.said > own.said
