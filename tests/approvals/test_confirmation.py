from typing import Any

from tables import table

from signoff.approvals.argument_rows import UNDECLARED
from signoff.approvals.card import render_card
from signoff.approvals.confirmation import (
    counts,
    is_confirmed,
    is_currency,
    is_money,
    is_number,
    missing_words,
    needs_typing,
    row_to_type,
)
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.content import Content
from signoff.testing import a_request


def asked(
    args: dict[str, Any], secrets: tuple[str, ...] = (), schema: dict[str, Any] | None = None, **fields: Any
) -> ApprovalRequest:
    card = render_card(effect="Pay", title="", tool="pay", args=args, schema=schema or {}, secrets=secrets)
    return a_request(**{"args": Content(inline=args), "card": card, "confirm": "type"} | fields)


@table(
    "typed",
    "9500", " 9500 ", "9500.00", "9500,00", "9,500", "9.500", "9,500.00", "9.500,00", "9 500,00", "9\u202f500.0",
    "9'500", "9,500.00 EUR", "EUR 9500", "\u20ac9,500", "9.500 \u20ac",
)  # fmt: skip
def test_amount_is_accepted_in_every_usual_notation(typed: str) -> None:
    assert is_confirmed(asked({"amount": 9500, "to": "Ana"}), typed)


@table(
    "typed",
    "",
    " ",
    "950",
    "95000",
    "09500",
    "95 00",
    "9,50,0",
    "9500 and more",
    "-9500",
    "Ana",
    "pay",
    "9.5",
    "9_500",
    "9e3",
)
def test_other_amount_or_value_is_refused(typed: str) -> None:
    assert not is_confirmed(asked({"to": "Ana", "amount": 9500}), typed)


def test_digits_in_a_text_are_no_amount() -> None:
    account = asked({"account": "0950"})
    assert is_confirmed(account, "0950")
    assert not is_confirmed(account, "950")
    assert not is_confirmed(account, "0950.00")


@table(("amount", "typed"), (420, "0.420"), (0.42, "420"), (1.5, "1500"), (1000000, "1.000,000"))
def test_separator_groups_only_complete_groups(amount: float, typed: str) -> None:
    assert not is_confirmed(asked({"amount": amount}), typed)


@table("amount", "NaN", "sNaN", "-Infinity", "9.50 each")
def test_non_numeric_amount_is_typed_literally(amount: str) -> None:
    schema = {"type": "object", "properties": {"amount": {"type": "string", "format": "money"}}}
    request = asked({"amount": amount}, schema=schema)
    assert is_confirmed(request, amount.lower())
    assert not is_confirmed(request, "9.50")


@table("blank", " ", "\u00a0\u3000")
def test_value_of_blanks_is_not_typed(blank: str) -> None:
    request = asked({"note": blank, "to": "Ana"})
    assert not is_confirmed(request, "")
    assert is_confirmed(request, "ana")
    alone = asked({"note": blank})
    assert not is_confirmed(alone, "")
    assert is_confirmed(alone, "K7Q-2FM")


def test_first_complete_value_is_typed_if_there_is_no_amount() -> None:
    request = asked({"pin": "4711", "text": "x" * 9_000, "iban": "DE89 3704"}, ("pin",))
    row = row_to_type(request)
    assert row is not None
    assert row.name == "iban"
    assert is_confirmed(request, "de893704")
    assert not is_confirmed(request, "4711")
    assert "`iban`" in missing_words(request)
    assert "3704" not in missing_words(request)


def test_code_is_typed_if_there_is_no_value() -> None:
    request = asked({"pin": "4711"}, ("pin",))
    assert is_confirmed(request, "k7q-2fm")
    assert not is_confirmed(request, "K7Q-2FN")
    assert "K7Q-2FM" in missing_words(request)


@table(
    ("fields", "wanted"),
    ({"confirm": ""}, False),
    ({"confirm": "", "min_assurance": "session"}, False),
    ({"confirm": "", "min_assurance": "mfa"}, True),
    ({"confirm": "type"}, True),
)
def test_typed_confirmation_is_required_by_option_or_strongest_assurance(fields: dict[str, Any], wanted: bool) -> None:
    request = asked({"amount": 9500}, **fields)
    assert needs_typing(request) is wanted
    assert is_confirmed(request, "") is not wanted


@table(
    ("name", "kind", "number", "money"),
    ("count", "integer", True, False),
    ("amount", "integer", True, True),
    ("amount", "string", False, False),
    ("note", "string", False, False),
    ("note", "money", True, True),
)
def test_money_is_recognised_by_format_and_name(name: str, kind: str, number: bool, money: bool) -> None:
    row = CardRow(name=name, label=name.title(), value="5", format=kind)
    assert (is_number(row), is_money(row)) == (number, money)


@table(
    ("name", "expected"),
    ("quantity", True),
    ("paid", True),
    ("items.0.quantity", True),
    ("order.total", True),
    ("id", False),
    ("order.id", False),
    ("orders.0.lines.2.id", False),
    ("user_id", False),
    ("User_ID", False),
    ("zip-code", False),
    ("account-balance", False),
    ("customerId", False),
    ("orderNo", False),
    ("orderNr", False),
    ("0", True),
)
def test_number_in_an_identifier_counts_nothing(name: str, expected: bool) -> None:
    assert counts(name) is expected


def currency_row(name: str = "currency", value: str = "EUR", **fields: Any) -> CardRow:
    return CardRow(**{"name": name, "label": "Currency", "value": value} | fields)


@table(
    "row",
    currency_row(),
    currency_row("Currency"),
    currency_row("currencyCode"),
    currency_row("order.price.currency"),
    currency_row("order.currencyCode"),
    currency_row("unit", format="currency-code"),
)
def test_declared_currency_code_is_the_currency(row: CardRow) -> None:
    assert is_currency(row)


@table(
    "row",
    currency_row("to", "ANA"),
    currency_row("currency.to", "ANA"),
    currency_row(value="euros"),
    currency_row(value="EURO"),
    currency_row(secret=True),
    currency_row(label=f"Currency {UNDECLARED}"),
    currency_row("unit", "EUR", format="currency-code", label=f"Unit {UNDECLARED}"),
)
def test_other_hidden_or_undeclared_value_is_no_currency(row: CardRow) -> None:
    assert not is_currency(row)


def test_digits_in_a_declared_text_are_no_amount() -> None:
    account = asked({"account": "0950"}, schema={"properties": {"account": {"type": "string"}}})
    assert is_confirmed(account, "0950")
    assert not is_confirmed(account, "950")
