"""Decides how long an approval in words waits, and whether later words of its author take it back."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from signoff.channels.envelopes import InboundAction
from signoff.channels.inbound.message_time import time_of_message
from signoff.contracts.approval import ApprovalRequest
from signoff.store.inbound_queue import InboundRow

HELD: Final = "held"
"""The mark in an arrival's note: its hold is over when it is claimed again."""
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
    """Return the later messages that were not read yet, and whether one that was read decided nothing.

    `others` arrived with the approval or after it. Of two that arrived together the time of writing decides; without
    one, the other message counts as the later.
    """
    waiting: list[tuple[InboundRow, InboundAction]] = []
    asked_back = False
    for other in others:
        if other.state != "new":
            asked_back = asked_back or (other.result or {}).get("what") == "asked"
            continue
        try:
            written = InboundAction.model_validate_json(other.body)
        except ValidationError:
            continue
        if not _is_earlier(other, written, row, action):
            waiting.append((other, written))
    return waiting, asked_back


def is_held(about: Mapping[str, Any] | None) -> bool:
    """Return whether an arrival was held already."""
    return about is not None and HELD in about


def _is_earlier(other: InboundRow, written: InboundAction, row: InboundRow, action: InboundAction) -> bool:
    first = time_of_message(written.said_at, other.received_at).said
    second = time_of_message(action.said_at, row.received_at).said
    return first is not None and second is not None and first < second
