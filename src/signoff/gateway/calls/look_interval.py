"""Says how long the ticket of an awaited call is left alone between two looks at it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SECONDS: Final = 0.004
_SHARE: Final = 0.125


class LookInterval:
    """Keeps a gateway's looks at tickets to 250 a second, however many calls it awaits.

    The longer a call takes the less often it is looked at: each look costs as much as what it may save.
    """

    def __init__(self) -> None:
        self._awaited = 0

    @contextmanager
    def awaiting(self) -> Iterator[None]:
        """Counts one call more as awaited within the block."""
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1

    def seconds(self, elapsed: float) -> float:
        """Returns the seconds until the next look at a call that has taken `elapsed` seconds."""
        return max(_SECONDS * self._awaited, elapsed * _SHARE)
