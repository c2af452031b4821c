"""Formats times, spans, numbers and arguments for one person. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo

from signoff.approvals.argument_rows import DEFAULT, UNDECLARED
from signoff.approvals.confirmation import counts, is_currency, is_money, is_number
from signoff.contracts.approval import AppliedTerm, ApproverGroup, CardRow
from signoff.contracts.person import Person
from signoff.formats.visible_text import cut_visible, one_line
from signoff.languages.catalogue import ENGLISH, form_of, language_of, text

_THIN: Final = "\u202f"
_MARKS: Final = {
    "en": (",", "."), "de": (".", ","), "es": (".", ","), "it": (".", ","), "nl": (".", ","), "pt": (".", ","),
    "da": (".", ","), "el": (".", ","), "tr": (".", ","), "fr": (_THIN, ","), "sv": (_THIN, ","), "fi": (_THIN, ","),
    "nb": (_THIN, ","), "no": (_THIN, ","), "pl": (_THIN, ","), "cs": (_THIN, ","), "ru": (_THIN, ","),
}  # fmt: skip
"""Maps a language to its thousands separator and decimal mark."""
_REASON_CHARS: Final = 300
_LABEL_CHARS: Final = 2_000
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


@dataclass(frozen=True)
class FormattedTime:
    """The forms of one time."""

    iso: str
    clock: str
    full: str
    """The full form, for tooltips and screen readers."""


@dataclass(frozen=True)
class Formatter:
    """Formats for one person: in `language`, with the numbers of `locale` and the clock of `zone`, at `now` (aware).

    An empty `locale` means the language's own.
    """

    language: str
    zone: tzinfo
    now: datetime
    locale: str = ""

    def text(self, key: str, **values: object) -> str:
        """Return a text of the catalogue, with whole numbers in the locale's form.

        Raises `KeyError` for an unknown key, and for a placeholder without value.
        """
        shown = {name: self.count(value) if type(value) is int else value for name, value in values.items()}
        words = form_of(key, self.language, values.get("n"))
        return words.format(**shown) if shown else words

    def open(self, groups: Iterable[ApproverGroup]) -> str:
        """Write a request's open places: `Still needed: 1 of finance, 2 of legal / ana.`. "" without groups."""
        groups_text = [
            self.text("card.group", n=group.quorum, who=" / ".join(each.partition(":")[2] for each in group.of))
            for group in groups
        ]
        return self.text("card.still", groups=", ".join(groups_text)) if groups_text else ""

    def stricter_reasons(self, applied: Iterable[AppliedTerm]) -> tuple[str, ...]:
        """Return the reasons for stricter terms, a sentence each: `2 people have to approve: it is the weekend.`."""
        return tuple(
            self.text(
                "card.stricter.quorum" if each.quorum > 1 else "card.stricter",
                n=each.quorum,
                reason=one_line(each.reason, _REASON_CHARS).text,
            )
            for each in applied
        )

    def span(self, seconds: float) -> str:
        """Write a length of time in one unit, rounded: `40 s`, `3 min`, `24 h`, `2 days`."""
        return span(seconds, self.language)

    def ago(self, moment: datetime) -> str:
        """Write the time since `moment`: `just now`, `3 min ago`."""
        seconds = (self.now - moment).total_seconds()
        if seconds < 10:
            return text("time.now", self.language)
        return text("time.ago", self.language, span=self.span(seconds))

    def until(self, moment: datetime) -> str:
        """Write the time until `moment`: `in 23 h`, or that it has passed."""
        seconds = (moment - self.now).total_seconds()
        if seconds <= 0:
            return text("time.over", self.language)
        return text("time.in", self.language, span=self.span(seconds))

    def is_soon(self, moment: datetime) -> bool:
        """Return whether less than an hour is left."""
        return moment - self.now < timedelta(hours=1)

    def time(self, at: datetime) -> str:
        """Write a time with its zone, and its day unless it is today: `Sun 22 Nov, 14:02 UTC`."""
        local = at.astimezone(self.zone)
        return self._write_date(local, f"{local:%H:%M} {local.tzname() or ''}".strip())

    def moment(self, at: datetime) -> FormattedTime:
        """Return three forms of a time. The clock names the zone unless it is known."""
        local = at.astimezone(self.zone)
        clock = self._write_date(local, f"{local:%H:%M}") if self.zone_is_known else self.time(at)
        full = self._at(f"{self.day(local)} {local.year}", f"{local:%H:%M:%S} {local.tzname() or ''}".strip())
        return FormattedTime(at.isoformat(timespec="seconds"), clock, full)

    @property
    def zone_is_known(self) -> bool:
        """Whether the zone is the person's own. Otherwise times name it."""
        return str(self.zone) != "UTC"

    def day(self, at: datetime) -> str:
        """Write a day without its year: `Sun 22 Nov`."""
        weekday = text("time.days_of_week", self.language).split()[at.weekday()]
        month = text("time.months", self.language).split()[at.month - 1]
        return text("time.day", self.language, weekday=weekday, day=at.day, month=month)

    def count(self, number: int) -> str:
        """Write a whole number with the locale's marks: `12,400`."""
        return self.number(Decimal(number), 0)

    def number(self, amount: Decimal, places: int) -> str:
        """Write a number with the locale's marks and at least `places` decimals, unrounded."""
        language = (self.locale or self.language).replace("_", "-").partition("-")[0].lower()
        group, point = _MARKS.get(language, _MARKS["en"])
        whole, _, rest = format(abs(amount), "f").partition(".")
        rest = rest.rstrip("0").ljust(places, "0")
        grouped = f"{int(whole):,}".replace(",", group)
        return ("-" if amount < 0 else "") + grouped + (point + rest if rest else "")

    def value(self, row: CardRow, rows: tuple[CardRow, ...]) -> str:
        """Write the value of a row: money, quantities, dates and IBANs formatted, others not.

        Masked and yes-or-no values are in the card's own words.
        """
        if row.secret or row.cut or not row.name or row.format == "boolean":
            return self.card_words(row)
        if is_number(row):
            return self._number(row, rows)
        if row.format in ("date", "date-time"):
            return self._date(row)
        if row.format == "iban":
            bare = row.value.replace(" ", "")
            return " ".join(bare[start : start + 4] for start in range(0, len(bare), 4))
        return row.value

    def label(self, label: str, limit: int = _LABEL_CHARS) -> str:
        """Write a label of at most `limit` characters, with its mark if it has one.

        The mark says that the schema lacks the argument, or that only its default sets it.
        """
        for mark, key in ((UNDECLARED, "value.undeclared"), (DEFAULT, "value.default")):
            if label.endswith(mark):
                return f"{cut_visible(label.removesuffix(mark), limit)}⟦{self.text(key)}⟧"
        return cut_visible(label, limit)

    def card_words(self, row: CardRow) -> str:
        """Write the value of a row, with the card's own words in this language.

        The call's own values stay unchanged.
        """
        if not row.name:
            return self.text(f"value.{row.format}", n=row.length, name=row.label) if row.format else row.value
        if row.secret:
            return (
                self.text("value.hidden") if row.value == "hidden" else self.text("value.hidden.length", n=row.length)
            )
        if row.format == "boolean" and row.value in ("yes", "no"):
            return self.text(f"value.{row.value}")
        return row.value

    def _number(self, row: CardRow, rows: tuple[CardRow, ...]) -> str:
        try:
            amount = Decimal(row.value)
        except InvalidOperation:
            return row.value
        if not amount.is_finite():
            return row.value
        if not is_money(row):
            return self.number(amount, 0) if counts(row.name) else row.value
        currency = next((each.value for each in rows if is_currency(each)), "")
        return f"{self.number(amount, 2)} {currency}".strip()

    def _date(self, row: CardRow) -> str:
        try:
            at = datetime.fromisoformat(row.value)
        except ValueError:
            return row.value
        day = f"{self.day(at)} {at.year}"
        if row.format == "date" or (len(row.value) <= 10):
            return day
        offset = at.strftime("%z")
        return self._at(day, f"{at:%H:%M}" + (f" ({offset[:3]}:{offset[3:]})" if offset else ""))

    def _write_date(self, local: datetime, clock: str) -> str:
        if local.date() == self.now.astimezone(self.zone).date():
            return clock
        return self._at(self.day(local), clock)

    def _at(self, day: str, clock: str) -> str:
        return text("time.at", self.language, day=day, clock=clock)


def formatter_for(person: Person, now: datetime) -> Formatter:
    """The time zone of a person without `reach` is UTC."""
    zone = UTC if person.reach is None else ZoneInfo(person.reach.timezone)
    return Formatter(language_of(person.locale), zone, now, person.locale)


def span(seconds: float, language: str = ENGLISH) -> str:
    """Write a length of time in one unit, rounded: `40 s`, `3 min`, `24 h`, `2 days`."""
    whole = max(0, round(seconds))
    minutes, hours, days = (round(whole / unit) for unit in (_MINUTE, _HOUR, _DAY))
    if whole < _MINUTE:
        return text("time.s", language, n=whole)
    if minutes < 60:
        return text("time.min", language, n=minutes)
    return text("time.h", language, n=hours) if hours < 48 else text("time.days", language, n=days)
