"""Parses opening hours of tools when the catalog is built: `Mo-Fr 08:00-18:00 Europe/Lisbon`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from signoff.formats.nearest_name import did_you_mean

DAYS: Final = ("Mo", "Tu", "We", "Th", "Fr", "Sa", "Su")
_FORM: Final = "`Mo-Fr 08:00-18:00 Europe/Lisbon`"
# `re.ASCII`: otherwise `\d`, like `int`, accepts the digits of every script.
_SPAN: Final = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)\Z", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*\Z")
_END_OF_DAY: Final = 24 * 60
_ONE_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class OpeningHours:
    """Hours on some weekdays (0 is Monday) in `zone`.

    `begin` and `end` are minutes of the day.

    The end is excluded. Hours that end before they begin continue on the next day, even if `days` does not contain it.
    """

    days: frozenset[int]
    begin: int
    end: int
    zone: ZoneInfo

    def holds(self, at: datetime) -> bool:
        """`at` is an aware time."""
        # Use local time, so that 08:00 stays 08:00 when summer time begins.
        there = at.astimezone(self.zone)
        minute, day = there.hour * 60 + there.minute, there.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        # Hours belong to the day on which they begin: `Fr 22:00-06:00` is open early on Saturday.
        before = (there.date() - _ONE_DAY).weekday()
        return (day in self.days and minute >= self.begin) or (before in self.days and minute < self.end)


def is_open(hours: Iterable[str], at: datetime) -> bool:
    """All hours must be valid: invalid ones count as closed."""
    return any(parse_opening_hours(each).holds(at) for each in hours)


# Unbounded, because only declared texts come here, and a catalog has few.
@cache
def parse_opening_hours(text: str) -> OpeningHours:
    """Raises `ValueError` that names the mistake."""
    words = text.split()
    if len(words) != 3:
        raise ValueError(f"`{text}` is not made of days, hours and a time zone, such as {_FORM}")
    days, span, zone = words
    return OpeningHours(_days(days), *_span(span), read_zone(zone))


def _days(text: str) -> frozenset[int]:
    numbers_of_days: set[int] = set()
    for each in text.split(","):
        first, dash, last = each.partition("-")
        begin, end = _day(first), _day(last if dash else first)
        # `Sa-Mo` crosses the end of the week.
        numbers_of_days.update((begin + ahead) % len(DAYS) for ahead in range((end - begin) % len(DAYS) + 1))
    return frozenset(numbers_of_days)


def _day(text: str) -> int:
    if text not in DAYS:
        near = did_you_mean(text, DAYS)
        raise ValueError(f"`{text}` is no day; days are {', '.join(f'`{day}`' for day in DAYS)}{near}")
    return DAYS.index(text)


def _span(text: str) -> tuple[int, int]:
    parts = _SPAN.match(text)
    if parts is None:
        raise ValueError(f"`{text}` is not a span of hours, such as `08:00-18:00`")
    numbers = [int(each) for each in parts.groups()]
    begin, end = (_minute(hour, minute, text) for hour, minute in (numbers[:2], numbers[2:]))
    # `08:00-08:00` could mean a whole day or nothing. A tool must not be open because of a guess.
    if begin in (end, _END_OF_DAY):
        raise ValueError(f"`{text}` holds no time; a whole day is `00:00-24:00`")
    return begin, end


def _minute(hour: int, minute: int, text: str) -> int:
    # Python's time has no 24:00, without which no range could reach the end of a day.
    if (hour, minute) == (24, 0):
        return _END_OF_DAY
    try:
        time(hour, minute)
    except ValueError:
        raise ValueError(f"`{text}` has an hour that no clock shows; they go from `00:00` to `24:00`") from None
    return hour * 60 + minute


def read_zone(text: str) -> ZoneInfo:
    """Raises `ValueError`."""
    # Other text would be a path in the directory of time zones.
    if _ZONE.match(text) is not None:
        try:
            return ZoneInfo(text)
        # A directory such as `Europe` raises `OSError`, an unknown zone `KeyError`.
        except (OSError, ValueError, LookupError):
            pass
    raise ValueError(f"`{text}` is no time zone that this machine knows, such as `Europe/Lisbon` or `UTC`")
