"""The clock that every process is given; nothing else asks the machine for the time of day."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Gives the present moment, aware and in UTC. Workflows have `workflow.now` in its place, which replays."""


def system_clock() -> datetime:
    """Returns this machine's time, aware and in UTC."""
    return datetime.now(UTC)
