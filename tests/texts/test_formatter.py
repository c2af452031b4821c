import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tables import table

from signoff.cli.terminal.card_lines import card_lines
from signoff.contracts.approval import AppliedTerm, ApprovalRequest, ApproverGroup, Card, CardRow, Vote
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.person import ContactPreferences, Person, Principal
from signoff.texts.formatter import Formatter, formatter_for, span

NOW = datetime(2026, 11, 21, 17, 0, tzinfo=UTC)


def reader(locale: str = "en", zone: str = "Europe/Lisbon") -> Formatter:
    return Formatter("en", ZoneInfo(zone), NOW, locale)


def row(value: str, name: str = "amount", kind: str = "number", **more: object) -> CardRow:
    return CardRow(name=name, label=name, value=value, format=kind, **more)


@table(
    ("seconds", "shown"),
    (0, "0 s"),
    (59, "59 s"),
    (60, "1 min"),
    (3_599, "1 h"),
    (3_600, "1 h"),
    (86_400, "24 h"),
    (200_000, "2 days"),
)
def test_spans_have_one_unit(seconds: float, shown: str) -> None:
    assert reader().span(seconds) == shown


@given(st.floats(min_value=0, max_value=40 * 86_400.0))
def test_a_span_is_wrong_by_half_of_its_unit_at_most(seconds: float) -> None:
    number, _, unit = span(seconds).partition(" ")
    size = {"s": 1, "min": 60, "h": 3_600, "days": 86_400}[unit]
    # Seconds are rounded first: half of one may be added.
    assert abs(int(number) * size - seconds) <= size / 2 + 0.5
    assert span(seconds) == reader().span(seconds)


def test_times_are_relative_and_in_the_persons_zone() -> None:
    tomorrow = NOW + timedelta(hours=23, minutes=40)
    assert reader().ago(NOW - timedelta(minutes=3)) == "3 min ago"
    assert reader().ago(NOW) == "just now"
    assert reader().until(tomorrow) == "in 24 h"
    assert reader().until(NOW) == "deadline passed"
    assert reader().moment(NOW).clock == "17:00"
    assert reader(zone="Asia/Tokyo").moment(NOW).clock == "02:00"
    assert reader().moment(tomorrow).clock == "Sun 22 Nov, 16:40"
    assert reader().moment(tomorrow).full == "Sun 22 Nov 2026, 16:40:00 WET"
    assert reader(zone="UTC").moment(NOW).clock == "17:00 UTC"


@table(("locale", "shown"), ("en", "12,345.50 EUR"), ("de-AT", "12.345,50 EUR"), ("fr", "12\u202f345,50 EUR"))
def test_money_follows_the_locale(locale: str, shown: str) -> None:
    rows = (row("12345.5"), row("EUR", "currency", "string"))
    assert reader(locale).value(rows[0], rows) == shown


def test_numbers_that_count_something_are_grouped() -> None:
    assert reader().value(row("2030", "year", "integer"), ()) == "2030"
    assert reader().value(row("12345678", "account", "integer"), ()) == "12345678"
    assert reader().value(row("12345678", "ids.0", "integer"), ()) == "12345678"
    assert reader().value(row("48211907", "customerId", "integer"), ()) == "48211907"
    assert reader().value(row("1234.5", "weight"), ()) == "1,234.5"
    assert reader("de").value(row("1000000", "pieces", "integer"), ()) == "1.000.000"
    assert reader().value(row("Infinity", "pieces", "number"), ()) == "Infinity"
    assert reader().value(row("NaN", "total", "number"), ()) == "NaN"
    assert reader().value(row("0.1234", "fee"), ()) == "0.1234"
    assert reader().value(row("hidden, 4 characters", secret=True, length=4), ()) == "hidden, 4 characters"
    assert reader().value(row("many", "total"), ()) == "many"


def test_dates_and_accounts_follow_their_format() -> None:
    assert reader().value(row("2030-05-04", "on", "date"), ()) == "Sat 4 May 2030"
    assert reader().value(row("2030-05-04T09:20:00+02:00", "at", "date-time"), ()) == "Sat 4 May 2030, 09:20 (+02:00)"
    assert reader().value(row("soon", "at", "date-time"), ()) == "soon"
    assert reader().value(row("PT50000201231234567890154", "to", "iban"), ()).startswith("PT50 0002 0123")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12))
def test_no_digit_of_an_amount_is_lost(amount: Decimal) -> None:
    shown = reader("de").number(amount, 2)
    assert Decimal(shown.replace(".", "").replace(",", ".")) == amount


def test_count_has_the_separators_of_the_locale() -> None:
    assert reader("de-CH").count(12_400) == "12.400"
    assert Formatter("fr", UTC, NOW).count(12_400) == "12\u202f400"
    assert reader().text("card.length", n=12_400) == "12,400 characters"
    assert Formatter("en", UTC, NOW).text("waiting.count", n=1) == "1 request needs your answer."


@table(
    ("ahead", "words"),
    (30, "in 30 s"),
    (90, "in 2 min"),
    (3_570, "in 1 h"),
    (47 * 3_600, "in 47 h"),
    (86_400 * 3, "in 3 days"),
)
def test_remaining_time_has_one_unit(ahead: int, words: str) -> None:
    assert reader().until(NOW + timedelta(seconds=ahead)) == words


def test_time_is_shown_in_the_persons_zone() -> None:
    now, late = datetime(2026, 11, 22, 14, 2, tzinfo=UTC), datetime(2026, 11, 22, 23, 30, tzinfo=UTC)
    assert Formatter("en", UTC, now).time(late) == "23:30 UTC"
    assert Formatter("de", ZoneInfo("Europe/Berlin"), now).time(late) == "Mo, 23. Nov., 00:30 CET"
    assert Formatter("fr", ZoneInfo("Europe/Berlin"), now).time(late) == "lun. 23 nov., 00:30 CET"


def test_formatter_has_the_persons_language() -> None:
    assert formatter_for(Person(id="a", locale="pt-BR"), NOW) == Formatter("pt", UTC, NOW, "pt-BR")
    there = Person(id="a", locale="pt-BR", reach=ContactPreferences(timezone="America/Sao_Paulo"))
    assert formatter_for(there, NOW) == Formatter("pt", ZoneInfo("America/Sao_Paulo"), NOW, "pt-BR")


def test_texts_of_the_card_are_translated() -> None:
    german, none = Formatter("de", UTC, NOW), ()
    left_out = CardRow(name="", label="items", value="3 more of items not shown", format="more_of", length=3)
    missing = CardRow(name="", label="", value="this card is incomplete", format="missing", length=1)
    assert (
        german.value(row("hidden, 4 characters", kind="string", secret=True, length=4), none) == "verborgen, 4 Zeichen"
    )
    assert german.value(row("hidden", secret=True, length=2), none) == "verborgen"
    assert german.value(left_out, none) == "3 weitere Werte von items nicht gezeigt"
    assert german.value(missing, none) == "diese Karte ist unvollständig: 1 Wert fehlt"
    assert (german.value(row("yes", kind="boolean"), none), german.value(row("yes", kind="string"), none)) == (
        "ja",
        "yes",
    )


def test_open_groups_and_stricter_terms_are_sentences() -> None:
    english, german = Formatter("en", UTC, NOW), Formatter("de", UTC, NOW)
    groups = (ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal", "user:ana"), quorum=2))
    assert english.open(groups) == "Still needed: 1 of finance, 2 of legal / ana."
    assert german.open(groups) == "Noch nötig: 1 von finance, 2 von legal / ana."
    assert english.open(()) == ""
    applied = (AppliedTerm(reason="it is the weekend", quorum=2), AppliedTerm(reason="new\n\u202epayee", timeout=60.0))
    found = english.stricter_reasons(applied)
    assert found[0] == "2 approvals are needed: it is the weekend."
    assert found[1].startswith("Stricter approval: new")
    assert "\u202e" not in found[1]


def test_terminal_shows_the_open_groups() -> None:
    finance, legal = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal",))
    vote = Vote(
        subject="ana",
        verdict="approved",
        at=NOW,
        entries=("role:finance",),
        decision=Decision.model_validate({"approval_id": "main.s.t.c1.1", "verdict": "approved"}),
    )
    request = ApprovalRequest(
        id="main.s.t.c1.1", code="K7Q2FM", tenant="main", turn="t", call="c1.1", tool="pay", digest="d",
        requester=Principal(user="guest"), args=Content(inline={}), card=Card(effect="Pay"), quorum=2, votes=(vote,),
        approvers=("role:finance", "role:legal"), groups=(finance, legal),
        applied=(AppliedTerm(reason="it is the weekend", quorum=2),),
    )  # fmt: skip
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(card_lines(request, NOW))
    shown = console.export_text()
    assert "1 of 2" in shown
    assert "1 of role:legal" in shown
    assert "2 people, as it is the weekend" in shown
