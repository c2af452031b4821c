import itertools
import logging
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.people.calendars import AHEAD, MOST_SPANS, find_away, find_shifts
from signoff.settings import Settings

NOW = datetime(2026, 9, 1, 9, tzinfo=UTC)
LISBON = ZoneInfo("Europe/Lisbon")
WORDS = Settings.model_fields["calendar_words"].default

# As Google Calendar exports it: no mark of its out-of-office events but their titles.
GOOGLE = """\
BEGIN:VCALENDAR
PRODID:-//Google Inc//Google Calendar 70.9054//EN
VERSION:2.0
CALSCALE:GREGORIAN
METHOD:PUBLISH
X-WR-CALNAME:ana@example.com
X-WR-TIMEZONE:Europe/Berlin
BEGIN:VTIMEZONE
TZID:Europe/Berlin
X-LIC-LOCATION:Europe/Berlin
BEGIN:DAYLIGHT
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
TZNAME:GMT+2
DTSTART:19700329T020000
RRULE:FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU
END:DAYLIGHT
BEGIN:STANDARD
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
TZNAME:GMT+1
DTSTART:19701025T030000
RRULE:FREQ=YEARLY;BYMONTH=10;BYDAY=-1SU
END:STANDARD
END:VTIMEZONE
BEGIN:VEVENT
DTSTART:20260903T070000Z
DTEND:20260903T150000Z
DTSTAMP:20260901T080000Z
UID:1@google.com
CREATED:20260801T080000Z
LAST-MODIFIED:20260801T080000Z
SEQUENCE:0
STATUS:CONFIRMED
SUMMARY:Out of office
TRANSP:OPAQUE
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20260910
DTEND;VALUE=DATE:20260912
DTSTAMP:20260901T080000Z
UID:2@google.com
STATUS:CONFIRMED
SUMMARY:Urlaub an der Müritz mit einem sehr langen Titel, den die Datei auf
  zwei Zeilen verteilt
TRANSP:OPAQUE
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20260920
DTEND;VALUE=DATE:20260921
DTSTAMP:20260901T080000Z
UID:3@google.com
SUMMARY:Vacation of the team
TRANSP:TRANSPARENT
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20260901T140000
DTEND;TZID=Europe/Berlin:20260901T150000
DTSTAMP:20260901T080000Z
RRULE:FREQ=WEEKLY;BYDAY=FR
UID:4@google.com
SUMMARY:Awayday planning
TRANSP:OPAQUE
END:VEVENT
END:VCALENDAR
"""

# As Exchange and Outlook publish it: Windows' names of zones, and the status.
OUTLOOK = """\
BEGIN:VCALENDAR
METHOD:PUBLISH
PRODID:Microsoft Exchange Server 2010
VERSION:2.0
X-WR-CALNAME:Calendar
BEGIN:VTIMEZONE
TZID:W. Europe Standard Time
BEGIN:STANDARD
DTSTART:16010101T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=10
END:STANDARD
BEGIN:DAYLIGHT
DTSTART:16010101T020000
TZOFFSETFROM:+0100
TZOFFSETTO:+0200
RRULE:FREQ=YEARLY;INTERVAL=1;BYDAY=-1SU;BYMONTH=3
END:DAYLIGHT
END:VTIMEZONE
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008
RRULE:FREQ=WEEKLY;UNTIL=20260924T080000Z;INTERVAL=1;BYDAY=TH;WKST=MO
EXDATE;TZID=W. Europe Standard Time:20260910T100000
SUMMARY;LANGUAGE=en-GB:Dentist
DTSTART;TZID=W. Europe Standard Time:20260903T100000
DTEND;TZID=W. Europe Standard Time:20260903T113000
CLASS:PUBLIC
PRIORITY:5
DTSTAMP:20260901T080000Z
TRANSP:OPAQUE
STATUS:CONFIRMED
SEQUENCE:0
X-MICROSOFT-CDO-BUSYSTATUS:OOF
X-MICROSOFT-CDO-ALLDAYEVENT:FALSE
END:VEVENT
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E008
RECURRENCE-ID;TZID=W. Europe Standard Time:20260917T100000
SUMMARY;LANGUAGE=en-GB:Dentist
DTSTART;TZID=W. Europe Standard Time:20260918T120000
DTEND;TZID=W. Europe Standard Time:20260918T130000
DTSTAMP:20260901T080000Z
X-MICROSOFT-CDO-BUSYSTATUS:OOF
END:VEVENT
BEGIN:VEVENT
UID:040000008200E00074C5B7101A82E009
SUMMARY;LANGUAGE=en-GB:Working elsewhere
DTSTART;VALUE=DATE:20260928
DTEND;VALUE=DATE:20260929
DTSTAMP:20260901T080000Z
TRANSP:TRANSPARENT
X-MICROSOFT-CDO-BUSYSTATUS:FREE
X-MICROSOFT-CDO-ALLDAYEVENT:TRUE
END:VEVENT
END:VCALENDAR
"""

# As Apple's Calendar exports it: times without a zone, durations, no status.
APPLE = """\
BEGIN:VCALENDAR
CALSCALE:GREGORIAN
METHOD:PUBLISH
PRODID:-//Apple Inc.//macOS 15.0//EN
VERSION:2.0
X-APPLE-CALENDAR-COLOR:#1BADF8
X-WR-CALNAME:Work
BEGIN:VEVENT
CREATED:20260801T080000Z
DTEND;VALUE=DATE:20260906
DTSTAMP:20260801T080000Z
DTSTART;VALUE=DATE:20260905
LAST-MODIFIED:20260801T080000Z
RDATE;VALUE=DATE:20260907,20260906
SEQUENCE:1
SUMMARY:ooo\\, at the sea
TRANSP:OPAQUE
UID:6E6C5AB8-0000-4F0F-9A36-1B9F3B2D7A10
X-APPLE-TRAVEL-ADVISORY-BEHAVIOR:AUTOMATIC
BEGIN:VALARM
ACTION:NONE
TRIGGER;VALUE=DATE-TIME:19760401T005545Z
END:VALARM
END:VEVENT
BEGIN:VEVENT
DTSTAMP:20260801T080000Z
DTSTART:20261001T130000
DURATION:PT90M
SUMMARY:On leave
UID:6E6C5AB8-0000-4F0F-9A36-1B9F3B2D7A11
END:VEVENT
BEGIN:VEVENT
DTSTAMP:20260801T080000Z
DTSTART:20261002T130000
DURATION:PT90M
STATUS:CANCELLED
SUMMARY:On leave
UID:6E6C5AB8-0000-4F0F-9A36-1B9F3B2D7A12
END:VEVENT
END:VCALENDAR
"""


def file(*lines: str, times: int = 1) -> bytes:
    event = "\r\n".join(("BEGIN:VEVENT", "UID:a", "SUMMARY:Away", *lines, "END:VEVENT"))
    return "\r\n".join(("BEGIN:VCALENDAR", "VERSION:2.0", *[event] * times, "END:VCALENDAR", "")).encode()


def found(content: bytes | str) -> list[str] | None:
    body = content.replace("\n", "\r\n").encode() if isinstance(content, str) else content
    spans = find_away(body, WORDS, LISBON, NOW)
    return None if spans is None else [f"{since:%m-%d %H:%M} to {until:%m-%d %H:%M}" for since, until in spans]


def test_google_export_means_away_by_its_titles() -> None:
    assert found(GOOGLE) == ["09-03 07:00 to 09-03 15:00", "09-09 23:00 to 09-11 23:00"]


def test_outlook_export_means_away_by_its_status_and_keeps_exceptions_of_a_series() -> None:
    assert found(OUTLOOK) == [
        "09-03 08:00 to 09-03 09:30",
        "09-18 10:00 to 09-18 11:00",
        "09-24 08:00 to 09-24 09:30",
    ]


def test_apple_export_counts_days_and_floating_times_in_the_persons_zone() -> None:
    assert found(APPLE) == ["09-04 23:00 to 09-07 23:00", "10-01 12:00 to 10-01 13:30"]


def test_cancelled_occurrence_is_left_out() -> None:
    text = OUTLOOK.replace("RECURRENCE-ID", "STATUS:CANCELLED\nRECURRENCE-ID")
    assert found(text) == ["09-03 08:00 to 09-03 09:30", "09-24 08:00 to 09-24 09:30"]


def test_series_keeps_its_hour_after_the_clocks_change() -> None:
    weekly = file(
        "DTSTART;TZID=Europe/Lisbon:20261019T090000", "DTEND;TZID=Europe/Lisbon:20261019T100000", "RRULE:FREQ=WEEKLY"
    )
    assert found(weekly) == ["10-19 08:00 to 10-19 09:00", "10-26 09:00 to 10-26 10:00"]


@table(
    "rule",
    "FREQ=SECONDLY", "FREQ=MINUTELY", "FREQ=HOURLY", "FREQ=DAILY;INTERVAL=0", "FREQ=DAILY;BYSECOND=1,2,3",
    "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30", "FREQ=DAILY;INTERVAL=14;BYDAY=FR", "FREQ=YEARLY;BYEASTER=1",
    "FREQ=DAILY;UNTIL=20260101", "X=Y",
)  # fmt: skip
def test_rule_without_days_makes_no_absence(rule: str) -> None:
    assert not found(file("DTSTART:20250901T080000Z", "DTEND:20250901T090000Z", f"RRULE:{rule}"))


def test_endless_series_ends_at_the_horizon() -> None:
    spans = find_away(file("DTSTART:20250901T080000Z", "DTEND:20250901T090000Z", "RRULE:FREQ=DAILY"), WORDS, UTC, NOW)
    assert spans is not None
    assert len(spans) == AHEAD.days
    assert spans[-1][0] < NOW + AHEAD


def test_file_that_repeats_too_much_is_unreadable() -> None:
    assert found(file("DTSTART:00010101T080000Z", "DTEND:00010101T090000Z", "RRULE:FREQ=DAILY")) is None
    ticks = iter(range(0, 100, 1))
    many = file("DTSTART:20260901T080000Z", "DTEND:20260901T090000Z", times=10)
    assert find_away(many, WORDS, UTC, NOW, clock=lambda: next(ticks)) is None


def test_number_and_length_of_absences_are_bounded() -> None:
    many = "".join(
        f"BEGIN:VEVENT\nSUMMARY:Away\nDTSTART:202610{day:02}T{hour:02}0000Z\nDURATION:PT5M\nEND:VEVENT\n"
        for day in range(1, 21)
        for hour in range(24)
    )
    spans = found(f"BEGIN:VCALENDAR\n{many}END:VCALENDAR\n")
    assert spans is not None
    assert len(spans) == MOST_SPANS
    century = find_away(file("DTSTART:20260101T000000Z", "DTEND:21260101T000000Z"), WORDS, UTC, NOW)
    assert century == ((datetime(2026, 1, 1, tzinfo=UTC), NOW + timedelta(days=366)),)


@table(
    "content",
    b"", b"<!doctype html><title>Sign in</title>", b"BEGIN:VCALENDAR", b"BEGIN:VEVENT\r\nEND:VEVENT\r\n",
    b"\xff\xfe\x00", b"{}",
)  # fmt: skip
def test_other_content_is_unreadable(content: bytes) -> None:
    assert found(content) is None


def test_unreadable_event_is_left_out() -> None:
    broken = OUTLOOK.replace("DTSTART;VALUE=DATE:20260928", "DTSTART;VALUE=DATE:2026x").replace("FREE", "OOF")
    assert found(broken) == found(OUTLOOK)


_LINES = st.sampled_from([line for each in (GOOGLE, OUTLOOK, APPLE) for line in each.splitlines()])
_NOISE = st.text(max_size=20) | st.sampled_from(["RRULE:FREQ=YEARLY", "DTSTART:99991231T235959", "DURATION:-P9999999D"])


@given(st.lists(_LINES | _NOISE, max_size=40), st.booleans())
def test_any_lines_are_read_without_an_error(lines: list[str], whole: bool) -> None:
    logging.disable(logging.CRITICAL)
    inner = "\r\n".join(lines)
    text = f"BEGIN:VCALENDAR\r\n{inner}\r\nEND:VCALENDAR\r\n" if whole else inner
    spans = find_away(text.encode(errors="replace"), WORDS, LISBON, NOW) or ()
    logging.disable(logging.NOTSET)
    assert all(since < until and until > NOW and since < NOW + AHEAD for since, until in spans)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(spans))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(content: bytes) -> None:
    assert not find_away(content, WORDS, LISBON, NOW)


TODAY = ("DTSTART:20260901T080000Z", "DTEND:20260901T100000Z")


def on_call(*lines: str) -> list[str] | None:
    shifts = find_shifts(file(*TODAY, *lines), UTC, NOW)
    return None if shifts is None else [each.name for each in shifts]


@table(
    ("lines", "names"),
    ((), ["Away"]),
    (("ATTENDEE:mailto:a@x.example", "ATTENDEE;PARTSTAT=DECLINED:mailto:b@x.example"), ["a@x.example"]),
    (("ATTENDEE;ROLE=OPT-PARTICIPANT:mailto:a@x.example",), []),
    (("ATTENDEE;ROLE=NON-PARTICIPANT:mailto:a@x.example",), []),
    (("ATTENDEE;CUTYPE=ROOM:mailto:a@x.example",), []),
    (("ATTENDEE:mailto:a@x.example", "STATUS:TENTATIVE"), []),
    (("ORGANIZER:mailto:o@x.example", "ATTENDEE:mailto:a@x.example", "ATTENDEE:MAILTO:O@x.example"), ["a@x.example"]),
    (("ORGANIZER:mailto:o@x.example", "ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:a@x.example"), []),
    (("ORGANIZER:mailto:o@x.example", "ATTENDEE;PARTSTAT=ACCEPTED:mailto:o@x.example"), ["o@x.example"]),
    ((f"ATTENDEE:mailto:{'a' * 245}@x.example",), []),
)
def test_shift_names_its_attendees_on_call_alone(lines: tuple[str, ...], names: list[str]) -> None:
    assert on_call(*lines) == names


@table("lines", ("EXRULE:FREQ=DAILY",), ("RECURRENCE-ID;RANGE=THISANDFUTURE:20260901T080000Z",))
def test_rota_with_exceptions_that_are_not_computed_is_unreadable(lines: tuple[str, ...]) -> None:
    assert on_call(*lines) is None
    assert find_away(file(*TODAY, *lines), WORDS, UTC, NOW) is not None


def test_file_that_cancels_its_events_is_unreadable() -> None:
    content = file(*TODAY).replace(b"VERSION:2.0", b"VERSION:2.0\r\nMETHOD:CANCEL")
    assert find_shifts(content, UTC, NOW) is None
