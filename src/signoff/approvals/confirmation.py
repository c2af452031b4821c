"""Checks the value that an approver retyped, in any usual notation, against the card.

The same rule applies to pages, API, batches, links and channels. Policies with `confirm: type` or the strongest sign-in
(`min_assurance: mfa`) require it.
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from signoff.approvals.argument_rows import UNDECLARED
from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.decision import at_least
from signoff.contracts.ids import read_code, show_code

_MONEY_WORDS: Final = frozenset(("amount", "cost", "costs", "price", "total", "fee", "sum", "budget", "fare"))
_MONEY_FORMATS: Final = frozenset(("money", "currency", "decimal", "amount"))
_NUMBERS: Final = frozenset(("number", "integer", "float", "double", "int32", "int64"))
_NAMES_OF_IDS: Final = frozenset(
    (
        "account",
        "code",
        "customer",
        "id",
        "ids",
        "index",
        "invoice",
        "issue",
        "line",
        "no",
        "nr",
        "number",
        "order",
        "phone",
        "pid",
        "port",
        "position",
        "ticket",
        "user",
        "version",
        "year",
        "zip",
    )
)
"""Numbers that count nothing: they have no sum and no separators."""
_CURRENCY: Final = re.compile(r"[A-Z]{3}\Z")
_WORD: Final = re.compile(r"[A-Za-z][a-z]*")
_UNIT: Final = re.compile(r"\A(?:[A-Za-z]{3}|[$€£¥])\s*|\s*(?:[A-Za-z]{3}|[$€£¥])\Z")
_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:[.,][0-9]+)?")
# No group starts with a zero, or `0.420` would be 420.
_GROUPED: Final = re.compile(r"-?[1-9][0-9]{0,2}([.,'\u2019\s])[0-9]{3}(?:\1[0-9]{3})*(?:(?!\1)[.,][0-9]+)?")
_TYPED_CHARS: Final = 2_000


def is_money(row: CardRow) -> bool:
    words = {word.lower() for word in _WORD.findall(f"{row.name} {row.label}")}
    return row.format in _MONEY_FORMATS or (is_number(row) and not words.isdisjoint(_MONEY_WORDS))


def is_number(row: CardRow) -> bool:
    """Includes amounts of money."""
    return row.format in _NUMBERS or row.format in _MONEY_FORMATS


def counts(name: str) -> bool:
    """Return whether a number in the argument of this dotted name counts something, unlike a year or an id."""
    key = next((each for each in reversed(name.split(".")) if not each.isdecimal()), "")
    words = set(key.lower().replace("-", "_").split("_"))
    return words.isdisjoint(_NAMES_OF_IDS) and not key.endswith(("Id", "No", "Nr"))


def is_currency(row: CardRow) -> bool:
    named = row.format == "currency-code" or row.name.rpartition(".")[2].lower() in ("currency", "currencycode")
    # Ignore an argument that the tool does not declare: a model may have added it.
    return named and not row.secret and not row.label.endswith(UNDECLARED) and _CURRENCY.match(row.value) is not None


def needs_typing(request: ApprovalRequest) -> bool:
    return request.confirm == "type" or at_least(request.min_assurance, "mfa")


def row_to_type(request: ApprovalRequest) -> CardRow | None:
    """Return the row whose value must be retyped, or `None` for the request's code.

    It is the amount, or else the first row shown completely.
    """
    # Ignore values of spaces only: spaces do not matter, so an empty text would match.
    rows = [row for row in request.card.rows if row.name and not row.secret and not row.cut and _bare(row.value)]
    return next((row for row in rows if is_money(row)), rows[0] if rows else None)


def is_confirmed(request: ApprovalRequest, typed: str) -> bool:
    """Always true if nothing must be retyped.

    An amount may be written in any usual way, with its currency: `9500`, `9,500.00`, `9.500,00 EUR`. For other values
    neither case nor spaces matter.
    """
    if not needs_typing(request):
        return True
    row, given = row_to_type(request), typed[:_TYPED_CHARS]
    if row is None:
        return read_code(given) == request.code
    amount = _amount(row)
    return _bare(given) == _bare(row.value) if amount is None else amount in _readings(given)


def missing_words(request: ApprovalRequest) -> str:
    """Ask for the value without repeating it."""
    row = row_to_type(request)
    what = f"the value of `{row.name}`" if row is not None else f"its code, {show_code(request.code)}"
    return f"this request wants {what} typed again"


def _bare(words: str) -> str:
    # A card quotes a text that looks like a number.
    return "".join(words.split()).casefold().strip('"')


def _amount(row: CardRow) -> Decimal | None:
    try:
        amount = Decimal(row.value) if is_number(row) else None
    except InvalidOperation:
        return None
    # An argument formatted as an amount may be the text `NaN`, which equals nothing, or `sNaN`, which raises.
    return amount if amount is not None and amount.is_finite() else None


def _readings(typed: str) -> list[Decimal]:
    """Return the amounts that `typed` may mean: two if a mark may group or divide (`9.500`)."""
    bare = _UNIT.sub("", typed.strip())
    readings = []
    if _PLAIN.fullmatch(bare):
        readings.append(Decimal(bare.replace(",", ".")))
    grouped = _GROUPED.fullmatch(bare)
    if grouped:
        readings.append(Decimal(bare.replace(grouped[1], "").replace(",", ".")))
    return readings
