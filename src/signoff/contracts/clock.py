"""The clock that every process uses. Nothing else reads the machine's time of day."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

Clock: TypeAlias = Callable[[], datetime]
"""Returns the present moment, aware and in UTC. Workflows use `workflow.now` instead, which replays."""


def system_clock() -> datetime:
    return datetime.now(UTC)
