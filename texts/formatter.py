"""For whom something is written, and how times, places and untrusted lines read."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from signoff.contracts.person import Person
from signoff.formats.visible_text import ELLIPSIS, one_line
from signoff.texts.catalogue import has_text, language_of, text

NAME_CHARS: Final = 80
_MARK: Final = re.compile(r"(⟦(?:U\+[0-9A-F]{4,6}|empty|none)⟧|⏎)")
_ATOM: Final = re.compile(rf"(?:{_MARK.pattern})|.", re.DOTALL)
_MARK_CHARS: Final = 10
"""The longest mark: `⟦U+10FFFF⟧`."""
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True)
class Voice:
    """For whom something is written: the language, the time zone, and the time now (aware)."""

    language: str
    zone: tzinfo
    now: datetime


def voice_of(person: Person, now: datetime) -> Voice:
    """How to speak to a person: in their language, and by the clocks of their zone where they have named one."""
    zone = UTC if person.reach is None else ZoneInfo(person.reach.timezone)
    return Voice(language_of(person.locale), zone, now)


def moment_words(at: datetime, voice: Voice) -> str:
    """A time in the person's zone, which is named; the day is told unless it is today."""
    local = at.astimezone(voice.zone)
    clock = f"{local:%H:%M} {local.tzname() or ''}".strip()
    if local.date() == voice.now.astimezone(voice.zone).date():
        return clock
    weekday = text("time.days_of_week", voice.language).split()[local.weekday()]
    month = text("time.months", voice.language).split()[local.month - 1]
    day = text("time.day", voice.language, weekday=weekday, day=local.day, month=month)
    return text("time.at", voice.language, day=day, clock=clock)


def until_words(moment: datetime, voice: Voice) -> str:
    """How long until: `in 23 h`, or that the time is over."""
    seconds = (moment - voice.now).total_seconds()
    if seconds <= 0:
        return text("time.over", voice.language)
    return text("time.in", voice.language, span=_span(seconds, voice.language))


def where_words(channel: str, language: str) -> str:
    """Where an answer came from: `by e-mail`."""
    key = f"where.{channel}"
    if has_text(key):
        return text(key, language)
    return text("where.other", language, channel=one_line(channel, NAME_CHARS).text)


def shown_again(line: str, limit: int) -> str:
    """Text of a card, where all is visible already, cut to `limit` between characters and never inside a mark.

    Whatever is not visible after all becomes a mark.
    """
    parts = _MARK.split(line[: 2 * limit + _MARK_CHARS])
    pieces = (part if at % 2 else one_line(part, _MARK_CHARS * len(part) + 2).text for at, part in enumerate(parts))
    whole = "".join(pieces)
    if len(whole) <= limit:
        return whole
    kept: list[str] = []
    used = len(ELLIPSIS)
    for found in _ATOM.finditer(whole):
        atom = found.group()
        used += len(atom)
        if used > limit:
            break
        kept.append(atom)
    return "".join(kept) + ELLIPSIS


def _span(seconds: float, language: str) -> str:
    """A length of time in one unit, rounded."""
    whole = round(seconds)
    minutes, hours, days = (round(whole / unit) for unit in (_MINUTE, _HOUR, _DAY))
    if whole < _MINUTE:
        return text("time.s", language, n=whole)
    if minutes < 60:
        return text("time.min", language, n=minutes)
    return text("time.h", language, n=hours) if hours < 48 else text("time.days", language, n=days)
