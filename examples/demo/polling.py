"""Polls until a condition holds, and reports the last value."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from signoff.contracts.errors import ServerUnavailable, SignoffError

PATIENCE_SECONDS: Final = 90.0
_GLANCE_SECONDS: Final = 0.2

T = TypeVar("T")


class Unexpected(SignoffError):
    """The story took another course. The message has the expected and the actual value."""


def expect(what: str, expected: object, seen: object) -> None:
    """Raise `Unexpected` unless both values are equal."""
    if seen != expected:
        raise Unexpected(f"{what}: expected {expected}, seen {seen}")


async def until(
    what: str, look: Callable[[], Awaitable[T]], is_so: Callable[[T], bool], patience: float = PATIENCE_SECONDS
) -> T:
    """Poll until `is_so`, through worker outages. Raises `Unexpected` after `patience` seconds."""
    deadline = time.monotonic() + patience
    seen: object = "nothing"
    while time.monotonic() < deadline:
        try:
            found = await look()
        except ServerUnavailable as error:
            seen = error.message
        else:
            if is_so(found):
                return found
            seen = found
        await asyncio.sleep(_GLANCE_SECONDS)
    raise Unexpected(f"{what}: expected within {patience:.0f} s, last seen {_short(seen)}")


def _short(seen: object) -> str:
    text = str(seen)
    return text if len(text) <= 500 else f"{text[:500]}…"
