"""Checks what an approver typed again against the one value of the card that has to be typed, however it is written.

The rule is one for pages, API, batch, links and channels. A policy with `confirm: type` wants it, and one that wants
the strongest sign-in (`min_assurance: mfa`).
"""

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from signoff.contracts.approval import ApprovalRequest, CardRow
from signoff.contracts.decision import at_least
from signoff.contracts.ids import read_code, show_code

_MONEY_WORDS: Final = frozenset(("amount", "cost", "costs", "price", "total", "fee", "sum", "budget", "fare"))
_MONEY_FORMATS: Final = frozenset(("money", "currency", "decimal", "amount"))
_NUMBERS: Final = frozenset(("number", "integer", "float", "double", "int32", "int64"))
_WORD: Final = re.compile(r"[A-Za-z][a-z]*")
_UNIT: Final = re.compile(r"\A(?:[A-Za-z]{3}|[$€£¥])\s*|\s*(?:[A-Za-z]{3}|[$€£¥])\Z")
_PLAIN: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:[.,][0-9]+)?")
# No group begins with a zero, or `0.420` would be 420.
_GROUPED: Final = re.compile(r"-?[1-9][0-9]{0,2}([.,'\u2019\s])[0-9]{3}(?:\1[0-9]{3})*(?:(?!\1)[.,][0-9]+)?")
_TYPED_CHARS: Final = 2_000


def is_money(row: CardRow) -> bool:
    """Returns whether a row is an amount of money, by its format or its name."""
    words = {word.lower() for word in _WORD.findall(f"{row.name} {row.label}")}
    return row.format in _MONEY_FORMATS or (is_number(row) and not words.isdisjoint(_MONEY_WORDS))


def is_number(row: CardRow) -> bool:
    """Returns whether a row is a number, an amount of money among them."""
    return row.format in _NUMBERS or row.format in _MONEY_FORMATS


def needs_typing(request: ApprovalRequest) -> bool:
    """Returns whether approving `request` wants a value typed again."""
    return request.confirm == "type" or at_least(request.min_assurance, "mfa")


def row_to_type(request: ApprovalRequest) -> CardRow | None:
    """Returns the row whose value is typed again: the amount, else the first that is shown whole; None for the code."""
    # As spaces do not matter, whoever types nothing would have typed a value of spaces alone.
    rows = [row for row in request.card.rows if row.name and not row.secret and not row.cut and _bare(row.value)]
    return next((row for row in rows if is_money(row)), rows[0] if rows else None)


def is_confirmed(request: ApprovalRequest, typed: str) -> bool:
    """Returns whether `typed` is what `request` wants before it is approved, so that nothing more has to be typed.

    An amount may be written in any usual way and with its currency: `9500`, `9,500.00`, `9.500,00 EUR`. Of other values
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
    """Says what has to be typed to approve `request`, without repeating the value."""
    row = row_to_type(request)
    what = f"the value of `{row.name}`" if row is not None else f"its code, {show_code(request.code)}"
    return f"this request wants {what} typed again"


def _bare(words: str) -> str:
    # A card puts a text in quotes where it would read as a number.
    return "".join(words.split()).casefold().strip('"')


def _amount(row: CardRow) -> Decimal | None:
    """Reads the number that a row shows; None for anything else."""
    try:
        found = Decimal(row.value) if is_number(row) else None
    except InvalidOperation:
        return None
    # An argument with the format of an amount may be the text `NaN`, which equals nothing, or `sNaN`, which raises.
    return found if found is not None and found.is_finite() else None


def _readings(typed: str) -> list[Decimal]:
    """Reads the amounts that `typed` may be, of which there are two where a mark may group or divide (`9.500`)."""
    bare = _UNIT.sub("", typed.strip())
    found = []
    if _PLAIN.fullmatch(bare):
        found.append(Decimal(bare.replace(",", ".")))
    grouped = _GROUPED.fullmatch(bare)
    if grouped:
        found.append(Decimal(bare.replace(grouped[1], "").replace(",", ".")))
    return found
