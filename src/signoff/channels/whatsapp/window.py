"""Who has written within 24 hours, as far as this process has heard: to them, and nobody else, anything may be sent."""

from collections import OrderedDict
from typing import Final

WINDOW_SECONDS: Final = 24 * 3_600
_MARGIN_SECONDS: Final = 120
"""Meta's clock is not ours, and a message takes its time."""
_KEPT: Final = 20_000
"""So many people are remembered; of the others it is not known, as after a start."""


class ServiceWindow:
    """When people wrote last, by each of their names. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._last: OrderedDict[str, float] = OrderedDict()

    def note_message(self, name: str, at: float) -> None:
        """Opens the window of somebody who wrote; a message that is brought again later, or out of order, opens nothing
        anew.
        """
        # Taken out and put in again: the first in it, which goes when it is full, was heard longest ago.
        self._last[name] = max(at, self._last.pop(name, 0.0))
        while len(self._last) > _KEPT:
            self._last.popitem(last=False)

    def is_open(self, name: str, now: float) -> bool:
        """Returns whether it is known that they wrote recently enough."""
        return now - self._last.get(name, 0.0) < WINDOW_SECONDS - _MARGIN_SECONDS

    def shut(self, name: str) -> None:
        """Closes a window that Meta says is not open, whatever we thought."""
        self._last.pop(name, None)
