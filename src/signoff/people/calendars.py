"""Finds in an iCal file (RFC 5545) when its owner is away, or who is on call.

An event means that its owner is away if Outlook marks it as out of office, or if its title begins with a word of a
list and it is not marked as free. Google and Apple export only the title.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final, TypeAlias

from signoff.people.absences import LONGEST
from signoff.people.on_call import Shift

Span: TypeAlias = tuple[datetime, datetime]
"""Beginning and exclusive end, in UTC."""

AHEAD: Final = timedelta(days=60)
"""How far ahead events are read."""
MOST_SPANS: Final = 100
MOST_SHIFTS: Final = 1_000
_MOST_STARTS: Final = 50_000
"""The most occurrences of one rule that are computed."""
_SECONDS: Final = 2.0
"""The longest time for the rules of one file."""
_ONE_DAY: Final = timedelta(days=1)
_TICK: Final = timedelta(microseconds=1)
# The library searches until the year 9999. With other parts, a rule without any day would take minutes.
_PARTS: Final = {
    "DAILY": frozenset(("BYDAY",)),
    "WEEKLY": frozenset(("BYDAY",)),
    "MONTHLY": frozenset(("BYDAY", "BYMONTHDAY", "BYSETPOS")),
    "YEARLY": frozenset(("BYDAY", "BYMONTHDAY", "BYSETPOS", "BYMONTH", "BYYEARDAY", "BYWEEKNO")),
}
_ALWAYS: Final = frozenset(("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST"))
_Moment: TypeAlias = date | datetime
# The longest email address.
_NAME_CHARS: Final = 254
_MAILTO: Final = re.compile(r"\Amailto:", re.IGNORECASE)


def find_away(
    content: bytes, words: Sequence[str], zone: tzinfo, now: datetime, *, clock: Callable[[], float] = time.monotonic
) -> tuple[Span, ...] | None:
    """Return the times away from `now` on, in order and without overlaps.

    `zone` is that of dates and of times without a zone. Returns `None` if `content` is no calendar, or has too many
    repetitions. Leaves out unreadable events. Never raises.
    """
    found = _find_spans(content, lambda event: ("",) if _means_away(event, words) else (), zone, now, clock)
    return None if found is None else _join([span for _, span in found])[:MOST_SPANS]


def find_shifts(
    content: bytes, zone: tzinfo, now: datetime, *, clock: Callable[[], float] = time.monotonic
) -> tuple[Shift, ...] | None:
    """Return the shifts from `now` on, in order. Otherwise as `find_away`."""
    found = _find_spans(content, _people_named, zone, now, clock)
    if found is None:
        return None
    shifts = sorted((Shift(name, *span) for name, span in found), key=lambda each: (each.since, each.name))
    return tuple(shifts[:MOST_SHIFTS])


def _find_spans(
    content: bytes,
    names_of: Callable[[Any], Sequence[str]],
    zone: tzinfo,
    now: datetime,
    clock: Callable[[], float],
) -> list[tuple[str, Span]] | None:
    # An extra of the distribution, and a heavy import.
    from icalendar import Calendar  # noqa: PLC0415

    try:
        calendars = Calendar.from_ical(content, multiple=True)
        if not calendars or any(each.name != "VCALENDAR" or _cancels(each) for each in calendars):
            return None
        events = [event for calendar in calendars for event in calendar.walk("VEVENT")]
    # The parser is third-party code, and the file may contain anything.
    except Exception:
        return None
    replaced = _replaced(events, zone)
    found: list[tuple[str, Span]] = []
    over = clock() + _SECONDS
    for event in events:
        if clock() > over:
            return None
        try:
            if names := names_of(event):
                found += [(name, span) for span in _spans(event, replaced, zone, now) for name in names]
        except _Unreadable:
            return None
        except Exception:
            continue
    return found


class _Unreadable(Exception):
    pass


def _cancels(calendar: Any) -> bool:
    return str(calendar.get("METHOD", "")).strip().upper() == "CANCEL"


def _means_away(event: Any, words: Iterable[str]) -> bool:
    def value(name: str) -> str:
        return str(event.get(name, "")).strip().upper()

    if value("STATUS") == "CANCELLED":
        return False
    busy = value("X-MICROSOFT-CDO-BUSYSTATUS")
    if busy == "OOF":
        return True
    if busy == "FREE" or value("TRANSP") == "TRANSPARENT":
        return False
    title = str(event.get("SUMMARY", "")).strip().casefold()
    return any(_begins(title, word.strip().casefold()) for word in words)


def _people_named(event: Any) -> tuple[str, ...]:
    # Without these exceptions the replaced person would stay on call.
    if "EXRULE" in event or ("RECURRENCE-ID" in event and "RANGE" in event["RECURRENCE-ID"].params):
        raise _Unreadable
    if str(event.get("STATUS", "")).strip().upper() in ("CANCELLED", "TENTATIVE"):
        return ()
    attendees = event.get("ATTENDEE", [])
    attendees = attendees if isinstance(attendees, list) else [attendees]
    organizer = _address(event.get("ORGANIZER", ""))
    coming = [_address(each) for each in attendees if _comes(each, organizer)]
    names = coming if attendees else [str(event.get("SUMMARY", "")).strip()]
    return tuple(dict.fromkeys(each for each in names if 0 < len(each) <= _NAME_CHARS))


def _comes(attendee: Any, organizer: str) -> bool:
    def value(name: str) -> str:
        return str(attendee.params.get(name, "")).strip().upper()

    if value("ROLE") in ("NON-PARTICIPANT", "OPT-PARTICIPANT") or value("CUTYPE") in ("RESOURCE", "ROOM"):
        return False
    reply = value("PARTSTAT")
    if not organizer:
        return reply != "DECLINED"
    # Calendars list the author of an invitation too.
    return reply == "ACCEPTED" or (not reply and _address(attendee).casefold() != organizer.casefold())


def _address(person: Any) -> str:
    return _MAILTO.sub("", str(person).strip())


def _begins(title: str, word: str) -> bool:
    return word != "" and title.startswith(word) and not title[len(word) :][:1].isalnum()


def _replaced(events: Iterable[Any], zone: tzinfo) -> frozenset[tuple[str, _Moment]]:
    """Return the occurrences that another event of the file changes or cancels."""
    found = set()
    for event in events:
        try:
            if "RECURRENCE-ID" in event:
                found.add((str(event["UID"]), _key(event["RECURRENCE-ID"].dt, zone)))
        except Exception:
            continue
    return frozenset(found)


def _spans(event: Any, replaced: frozenset[tuple[str, _Moment]], zone: tzinfo, now: datetime) -> Iterator[Span]:
    first: _Moment = event["DTSTART"].dt
    its_zone = (first.tzinfo if isinstance(first, datetime) else None) or zone
    length = _length(event, first, its_zone)
    single = "RECURRENCE-ID" in event
    uid = str(event.get("UID", ""))
    left_out = {_key(each, its_zone) for each in _listed(event, "EXDATE")}
    for start in _starts(event, first, its_zone, now + AHEAD):
        key = _key(start, its_zone)
        day = start.date() if isinstance(start, datetime) else start
        if not single and (key in left_out or day in left_out or (uid, key) in replaced):
            continue
        since = _utc(start, its_zone)
        # Days are counted by the calendar: one of them may have 23 hours.
        until = since + length if isinstance(start, datetime) else _utc(start + length, its_zone)
        until = min(until, now + LONGEST)
        if since < until and now < until and since < now + AHEAD:
            yield since, until


def _starts(event: Any, first: _Moment, zone: tzinfo, last: datetime) -> Iterator[_Moment]:
    """Yield the starts until about `last`: dates for an event of whole days, else times."""
    rules = event.get("RRULE", []) if "RECURRENCE-ID" not in event else []
    rules = rules if isinstance(rules, list) else [rules]
    seen = set()
    if not rules:
        seen.add(_key(first, zone))
        yield first
    for rule in rules:
        for start in _repeat(rule, first, zone, last):
            seen.add(_key(start, zone))
            yield start
    for start in _listed(event, "RDATE"):
        if _key(start, zone) not in seen:
            yield start


def _repeat(rule: Any, first: _Moment, zone: tzinfo, last: datetime) -> Iterator[_Moment]:
    # Rules count by the clocks of the event's zone.
    from dateutil.rrule import rrulestr  # noqa: PLC0415

    written = dict(part.split("=", 1) for part in rule.to_ical().decode().upper().strip(";").split(";"))
    frequency, interval = written.get("FREQ", ""), int(written.get("INTERVAL", "1"))
    by_day = frequency == "DAILY" and "BYDAY" in written
    if not written.keys() <= _ALWAYS | _PARTS.get(frequency, frozenset()) or frequency not in _PARTS:
        return
    # For 0 the library never ends. In steps of whole weeks it finds no other weekday.
    if interval < 1 or (by_day and interval % 7 == 0):
        return
    begin = _wall(first, zone)
    written.pop("UNTIL", None)
    until = rule.get("UNTIL", [None])[0]
    end = _wall(last, zone)
    if until is not None:
        # A date includes its whole day.
        end = min(end, _wall(until, zone) + (timedelta() if isinstance(until, datetime) else _ONE_DAY - _TICK))
    starts = rrulestr(";".join(f"{name}={value}" for name, value in written.items()), dtstart=begin)
    for number, start in enumerate(starts):
        if start > end:
            return
        if number >= _MOST_STARTS:
            raise _Unreadable
        yield start.replace(tzinfo=zone) if isinstance(first, datetime) else start.date()


def _listed(event: Any, name: str) -> Iterator[_Moment]:
    given = event.get(name, [])
    for each in given if isinstance(given, list) else [given]:
        for value in each.dts:
            # A period begins with its start.
            yield value.dt[0] if isinstance(value.dt, tuple) else value.dt


def _length(event: Any, first: _Moment, zone: tzinfo) -> timedelta:
    if "DTEND" in event:
        last: _Moment = event["DTEND"].dt
        if isinstance(first, datetime):
            return _utc(last, zone) - _utc(first, zone)
        return (last.date() if isinstance(last, datetime) else last) - first
    if "DURATION" in event:
        duration: timedelta = event["DURATION"].dt
        return duration
    return timedelta() if isinstance(first, datetime) else _ONE_DAY


def _key(moment: _Moment, zone: tzinfo) -> _Moment:
    return _utc(moment, zone) if isinstance(moment, datetime) else moment


def _utc(moment: _Moment, zone: tzinfo) -> datetime:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def _wall(moment: _Moment, zone: tzinfo) -> datetime:
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day)
    return (moment.astimezone(zone) if moment.tzinfo else moment).replace(tzinfo=None)


def _join(found: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for since, until in sorted(found):
        if joined and since <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], until))
        else:
            joined.append((since, until))
    return tuple(joined)
