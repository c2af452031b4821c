"""Decides which time of a message counts: the earlier of its writing and its arrival.

A vendor may deliver a message days late. Words can only answer a request that had reached their author by then.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

SLACK: Final = timedelta(seconds=2)
"""A card counts as sent this long before its first try began: vendors tell times in whole seconds, by their clocks."""
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
    """When its author wrote it, never after `arrived`; None if no plausible time is known."""


def time_of_message(said_at: datetime | None, arrived: datetime) -> MessageTime:
    """Return the times of a message that arrived at `arrived` and claims to be written at `said_at`."""
    if said_at is None or not arrived - OLDEST <= said_at <= arrived + AHEAD:
        return MessageTime(arrived, None)
    return MessageTime(arrived, min(said_at, arrived))
