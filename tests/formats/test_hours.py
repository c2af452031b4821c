from datetime import UTC, datetime

import pytest
from tables import table

from signoff.formats.hours import is_open, parse_opening_hours

OFFICE = "Mo-Fr 08:00-18:00 Europe/Lisbon"


def at(text: str) -> datetime:
    """2026-07-06 and 2026-01-05 are Mondays."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@table(
    ("hours", "moment", "open_then"),
    (OFFICE, "2026-01-05T08:00", True),
    (OFFICE, "2026-01-05T07:59:59", False),
    (OFFICE, "2026-01-05T17:59:59", True),
    (OFFICE, "2026-01-05T18:00", False),
    # In summer, Lisbon is an hour ahead of UTC.
    (OFFICE, "2026-07-06T07:00", True),
    (OFFICE, "2026-07-06T17:00", False),
    (OFFICE, "2026-01-10T12:00", False),
    ("Sa,Su 00:00-24:00 UTC", "2026-01-10T00:00", True),
    ("Sa,Su 00:00-24:00 UTC", "2026-01-11T23:59:59", True),
    ("Sa,Su 00:00-24:00 UTC", "2026-01-12T00:00", False),
    ("Fr-Mo 10:00-11:00 UTC", "2026-01-11T10:30", True),
    ("Fr-Mo 10:00-11:00 UTC", "2026-01-13T10:30", False),
    # Friday's night ends on Saturday, and Friday morning is Thursday's.
    ("Fr 22:00-06:00 UTC", "2026-01-09T22:00", True),
    ("Fr 22:00-06:00 UTC", "2026-01-10T05:59", True),
    ("Fr 22:00-06:00 UTC", "2026-01-10T06:00", False),
    ("Fr 22:00-06:00 UTC", "2026-01-09T05:00", False),
    ("Mo 22:00-06:00 UTC", "2026-01-06T05:59", True),
    # In Auckland it is already Tuesday.
    ("Tu 00:00-12:00 Pacific/Auckland", "2026-01-05T12:00", True),
)
def test_opening_hours_use_the_clock_of_their_zone(hours: str, moment: str, open_then: bool) -> None:
    assert parse_opening_hours(hours).holds(at(moment)) is open_then


def test_any_of_several_windows_is_enough() -> None:
    both = ("Mo 08:00-09:00 UTC", "Tu 10:00-11:00 UTC")
    assert is_open(both, at("2026-01-06T10:00"))
    assert not is_open(both, at("2026-01-05T10:00"))
    assert not is_open((), at("2026-01-05T10:00"))


@table(
    ("hours", "mistake"),
    ("", "is not made of days, hours and a time zone, such as `Mo-Fr 08:00-18:00 Europe/Lisbon`"),
    ("Mo-Fr 08:00-18:00", "is not made of days, hours and a time zone"),
    ("Mo-Fr 08:00 - 18:00 UTC", "is not made of days"),
    ("Mon 08:00-18:00 UTC", "`Mon` is no day; days are `Mo`, `Tu`"),
    ("Mo-Fr- 08:00-18:00 UTC", "`Fr-` is no day"),
    ("Mo, 08:00-18:00 UTC", "`` is no day"),
    ("Mo 8:00-18:00 UTC", "`8:00-18:00` is not a span of hours, such as `08:00-18:00`"),
    ("Mo 08:00-18:60 UTC", "an hour that no clock shows"),
    ("Mo 08:00-25:00 UTC", "an hour that no clock shows"),
    ("Mo 08:00-24:01 UTC", "an hour that no clock shows"),
    ("Mo 08:00-08:00 UTC", "holds no time; a whole day is `00:00-24:00`"),
    ("Mo 24:00-06:00 UTC", "holds no time"),
    ("Mo 08:00-18:00 Europe/Lisboa", "`Europe/Lisboa` is no time zone that this machine knows"),
    ("Mo 08:00-18:00 ../../etc/passwd", "is no time zone"),
    ("Mo 08:00-18:00 Europe", "is no time zone"),
)
def test_invalid_opening_hours_name_the_error(hours: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=r".") as found:
        parse_opening_hours(hours)
    assert mistake in str(found.value)
