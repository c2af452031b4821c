"""Times, numbers and values as a person reads them. Pure: the time now and the person's locale are passed in."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Final

from signoff.approvals.argument_rows import UNDECLARED
from signoff.contracts.approval import CardRow
from signoff.gateway.pages.texts import text

_THIN: Final = "\u202f"
_MARKS: Final = {
    "en": (",", "."), "de": (".", ","), "es": (".", ","), "it": (".", ","), "nl": (".", ","), "pt": (".", ","),
    "da": (".", ","), "el": (".", ","), "tr": (".", ","), "fr": (_THIN, ","), "sv": (_THIN, ","), "fi": (_THIN, ","),
    "nb": (_THIN, ","), "no": (_THIN, ","), "pl": (_THIN, ","), "cs": (_THIN, ","), "ru": (_THIN, ","),
}  # fmt: skip
"""Language -> thousands separator, decimal mark."""
_MONEY_WORDS: Final = frozenset(("amount", "cost", "costs", "price", "total", "fee", "sum", "budget", "fare"))
_MONEY_FORMATS: Final = frozenset(("money", "currency", "decimal", "amount"))
_NUMBERS: Final = frozenset(("number", "integer", "float", "double", "int32", "int64"))
_WORD = re.compile(r"[A-Za-z][a-z]*")
_CURRENCY = re.compile(r"[A-Z]{3}\Z")
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True)
class Moment:
    """One time as shown: `iso` for machines, `clock` short, `full` for hovering and screen readers."""

    iso: str
    clock: str
    full: str


@dataclass(frozen=True)
class Reader:
    """For whom something is written: language, locale and time zone."""

    language: str
    locale: str
    zone: tzinfo
    now: datetime

    def span(self, seconds: float) -> str:
        """A length of time in one unit, rounded: `40 s`, `3 min`, `23 h`, `2 days`."""
        whole = max(0, round(seconds))
        minutes, hours, days = (round(whole / unit) for unit in (_MINUTE, _HOUR, _DAY))
        if whole < _MINUTE:
            return text("time.s", self.language, n=whole)
        if minutes < 60:
            return text("time.min", self.language, n=minutes)
        if hours < 48:
            return text("time.h", self.language, n=hours)
        return text("time.days", self.language, n=days)

    def ago(self, moment: datetime) -> str:
        """How long ago: `just now`, `3 min ago`."""
        seconds = (self.now - moment).total_seconds()
        if seconds < 10:
            return text("time.now", self.language)
        return text("time.ago", self.language, span=self.span(seconds))

    def until(self, moment: datetime) -> str:
        """How long until: `in 23 h`, or that the time is over."""
        seconds = (moment - self.now).total_seconds()
        if seconds <= 0:
            return text("time.over", self.language)
        return text("time.in", self.language, span=self.span(seconds))

    def soon(self, moment: datetime) -> bool:
        """Whether less than an hour is left."""
        return moment - self.now < timedelta(hours=1)

    def moment(self, at: datetime) -> Moment:
        """A time in the person's zone; the day is told unless it is today."""
        local, today = at.astimezone(self.zone), self.now.astimezone(self.zone).date()
        clock = f"{local:%H:%M}"
        zone = local.tzname() or ""
        day = self._day(local)
        short = clock if local.date() == today else f"{day}, {clock}"
        named = short if self.zone_is_known else f"{short} {zone}"
        return Moment(at.isoformat(timespec="seconds"), named, f"{day} {local.year}, {local:%H:%M:%S} {zone}".strip())

    @property
    def zone_is_known(self) -> bool:
        """Whether the zone is the person's own; otherwise times name it."""
        return str(self.zone) != "UTC"

    def value(self, row: CardRow, rows: tuple[CardRow, ...]) -> str:
        """An argument as shown: money, dates and accounts by their format, all else as it stands."""
        if row.secret or row.cut:
            return row.value
        if row.format in _NUMBERS or row.format in _MONEY_FORMATS:
            return self._number(row, rows)
        if row.format in ("date", "date-time"):
            return self._date(row)
        if row.format == "iban":
            bare = row.value.replace(" ", "")
            return " ".join(bare[start : start + 4] for start in range(0, len(bare), 4))
        return row.value

    def number(self, amount: Decimal, places: int) -> str:
        """A number with the locale's marks and at least `places` decimals; never rounded."""
        group, point = _MARKS.get(self.locale.replace("_", "-").partition("-")[0].lower(), _MARKS["en"])
        whole, _, rest = format(abs(amount), "f").partition(".")
        rest = rest.rstrip("0").ljust(places, "0")
        grouped = f"{int(whole):,}".replace(",", group)
        return ("-" if amount < 0 else "") + grouped + (point + rest if rest else "")

    def _number(self, row: CardRow, rows: tuple[CardRow, ...]) -> str:
        try:
            amount = Decimal(row.value)
        except InvalidOperation:
            return row.value
        if not is_money(row):
            # A whole number may be a year or an account: only fractions are certain to be quantities.
            return row.value if amount == amount.to_integral_value() else self.number(amount, 0)
        currency = next((each.value for each in rows if _is_currency(each)), "")
        return f"{self.number(amount, 2)} {currency}".strip()

    def _date(self, row: CardRow) -> str:
        try:
            at = datetime.fromisoformat(row.value)
        except ValueError:
            return row.value
        day = f"{self._day(at)} {at.year}"
        if row.format == "date" or (len(row.value) <= 10):
            return day
        offset = at.strftime("%z")
        return f"{day}, {at:%H:%M}" + (f" ({offset[:3]}:{offset[3:]})" if offset else "")

    def _day(self, at: datetime) -> str:
        weekday = text("time.days_of_week", self.language).split()[at.weekday()]
        month = text("time.months", self.language).split()[at.month - 1]
        return f"{weekday} {at.day} {month}"


def is_money(row: CardRow) -> bool:
    """Whether a number is an amount of money, by its format or its name."""
    if row.format in _MONEY_FORMATS:
        return True
    words = {word.lower() for word in _WORD.findall(f"{row.name} {row.label}")}
    return row.format in _NUMBERS and not words.isdisjoint(_MONEY_WORDS)


def _is_currency(row: CardRow) -> bool:
    named = row.format == "currency-code" or row.name.rpartition(".")[2].lower() in ("currency", "currencycode")
    # What the tool does not know as its currency is none: a model may have put it there.
    return named and not row.secret and not row.label.endswith(UNDECLARED) and _CURRENCY.match(row.value) is not None
