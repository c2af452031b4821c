"""Keeps for a short while what was read, so that the next request need not read it again."""

from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

KEPT: Final = timedelta(seconds=60)
MOST: Final = 2_000
_V = TypeVar("_V")


class RecentItems(Generic[_V]):
    """Keeps the latest items by name; for what does not change under its name while it is kept."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, tuple[datetime, _V]] = OrderedDict()

    def keep(self, name: str, item: _V, now: datetime) -> None:
        """Keeps an item from now on, in place of an earlier one of its name."""
        self._items[name] = (now, item)
        self._items.move_to_end(name)
        if len(self._items) > MOST:
            self._items.popitem(last=False)

    def find(self, name: str, now: datetime) -> _V | None:
        """Returns the item of a name, None where none was kept lately."""
        kept = self._items.get(name)
        if kept is None or not timedelta() <= now - kept[0] < KEPT:
            return None
        return kept[1]
