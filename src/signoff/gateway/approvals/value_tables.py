"""Groups the values of lists of objects into tables with a header, a row for each object and sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from typing import Any, Final, NamedTuple

from signoff.approvals.argument_rows import UNDECLARED, find, keys_from_name
from signoff.approvals.confirmation import counts, is_currency, is_money
from signoff.contracts.approval import CardRow
from signoff.texts.formatter import Formatter

COLUMNS: Final = 6
"""Wider lists stay one value a line: a phone has no room for more columns."""
CELL_CHARS: Final = 60
ELLIPSIS: Final = "…"
_SEPARATOR: Final = " / "
_LEAST_OBJECTS: Final = 2
# More sentences would push the rest of the card off the screen.
_CURRENCIES: Final = 4
_ABSENT: Final = object()


class Cell(NamedTuple):
    """One value of a flat list of values, in the order of the arguments."""

    name: str
    """The dotted name."""
    label: str
    """The label, with the labels of its parents."""
    text: str
    """The value as shown."""
    is_short: bool
    """Whether the value is whole and fits a cell."""


@dataclass(frozen=True)
class ValueTable:
    """A list of objects."""

    label: str
    columns: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """For each object its number, from 1, and its cells."""
    sums: tuple[str, ...]
    """The sum of each number column over the whole list, "" for other columns; empty without a number column."""
    total: int
    """The number of objects in the list."""
    ranges: tuple[str, ...] = ()
    """A sentence about each number column: its least and greatest value, and the sum."""
    name: str = field(default="", compare=False)
    """The dotted name of the list."""
    new: str = ""


def find_tables(cells: Sequence[Cell], args: Any, formatter: Formatter) -> list[int | ValueTable]:
    """Return the index of each cell. Tables replace runs of objects."""
    found: list[int | ValueTable] = []
    uneven = {each for cell in cells if not _list_of(cell) for each in _lists_around(cell)}
    places = [place if (place := _list_of(cell)) not in uneven else () for cell in cells]
    for place, run in groupby(range(len(cells)), key=places.__getitem__):
        numbers = list(run)
        table = _table([cells[at] for at in numbers], args, formatter) if place else None
        found += [table] if table else numbers
    return found


def _list_of(cell: Cell) -> tuple[str, ...]:
    """Return the keys of the list that holds the cell's object; empty for other values."""
    keys = keys_from_name(cell.name)
    is_field = cell.is_short and len(keys) > _LEAST_OBJECTS and _is_index(keys[-2]) and not _is_index(keys[-1])
    return tuple(keys[:-2]) if is_field else ()


def _lists_around(cell: Cell) -> list[tuple[str, ...]]:
    keys = keys_from_name(cell.name)
    return [tuple(keys[:at]) for at, key in enumerate(keys) if _is_index(key)]


def _table(cells: list[Cell], args: Any, formatter: Formatter) -> ValueTable | None:
    texts: dict[int, dict[str, str]] = {}
    columns: dict[str, str] = {}
    for cell in cells:
        *_, index, key = keys_from_name(cell.name)
        texts.setdefault(int(index), {})[key] = cell.text
        columns.setdefault(key, cell.label.rpartition(_SEPARATOR)[2])
    prefix = cells[0].name.rsplit(".", 2)[0]
    objects = find(args, prefix, _ABSENT) if isinstance(args, dict) else _ABSENT
    if len(texts) < _LEAST_OBJECTS or len(columns) > COLUMNS or not isinstance(objects, list | tuple):
        return None
    # A page may begin in the middle of an object; the columns keep the order of the arguments.
    order = [key for item in objects if isinstance(item, dict) for key in item]
    if not columns.keys() <= set(order):
        return None
    columns = dict(sorted(columns.items(), key=lambda column: order.index(column[0])))
    sums = {key: _sum(key, objects) for key in columns}
    currencies = _currencies(objects, columns)
    parts = {
        key: split_by_currency([Decimal(str(item[key])) for item in objects], currencies if is_amount(column) else ())
        for key, column in columns.items()
        if sums[key] is not None
    }
    rows = tuple(
        (str(index + 1), tuple(_text(key, objects[index], shown, sums[key], formatter) for key in columns))
        for index, shown in texts.items()
        if index < len(objects)
    )
    written = tuple(sum_words(parts.get(key, ()), formatter) for key in columns)
    return ValueTable(
        label=cells[0].label.rpartition(_SEPARATOR)[0].rpartition(" ")[0],
        columns=tuple(columns.values()),
        numeric=tuple(total is not None for total in sums.values()),
        rows=rows,
        sums=written if any(written) else (),
        total=len(objects),
        ranges=tuple(each for key in parts for each in _ranges(columns[key], parts[key], formatter)),
        name=prefix,
    )


class CurrencyPart(NamedTuple):
    """One currency's numbers."""

    currency: str
    values: dict[int, Decimal]

    def words(self, value: Decimal, formatter: Formatter) -> str:
        return f"{formatter.number(value, 0)} {self.currency}".strip()


def split_by_currency(values: Sequence[Decimal], currencies: Sequence[str]) -> list[CurrencyPart]:
    # A sum over currencies would mislead.
    parts: dict[str, CurrencyPart] = {}
    for at, (value, currency) in enumerate(zip(values, currencies or [""] * len(values), strict=True), 1):
        parts.setdefault(currency, CurrencyPart(currency, {})).values[at] = value
    return sorted(parts.values(), key=lambda part: -max(part.values.values()))


def sum_words(parts: Sequence[CurrencyPart], formatter: Formatter) -> str:
    sums = [part.words(sum(part.values.values(), Decimal(0)), formatter) for part in parts]
    return ", ".join(_first(sums))


def is_amount(name: str) -> bool:
    return is_money(CardRow(name=name, label="", value="", format="number"))


def currency_of(name: str, value: Any) -> str:
    return value if isinstance(value, str) and is_currency(CardRow(name=name, label="", value=value)) else ""


def _currencies(objects: Sequence[Any], columns: Mapping[str, str]) -> list[str]:
    # A model may have added a currency that the tool does not declare.
    keys = [key for key, column in columns.items() if not column.endswith(UNDECLARED)]
    each = (item if isinstance(item, dict) else {} for item in objects)
    return [next(filter(None, (currency_of(key, item.get(key)) for key in keys)), "") for item in each]


def _ranges(column: str, parts: Sequence[CurrencyPart], formatter: Formatter) -> list[str]:
    return _first([_range(column, part, formatter) for part in parts])


def _range(column: str, part: CurrencyPart, formatter: Formatter) -> str:
    at, most = max(part.values.items(), key=lambda each: each[1])
    least = formatter.number(min(part.values.values()), 0)
    shown = {"most": most, "sum": sum(part.values.values(), Decimal(0))}
    written = {name: part.words(value, formatter) for name, value in shown.items()}
    return formatter.text("card.table.range", column=column, at=at, least=least, **written)


def _first(texts: list[str]) -> list[str]:
    return texts if len(texts) <= _CURRENCIES else [*texts[:_CURRENCIES], ELLIPSIS]


def _text(key: str, item: Any, shown: dict[str, str], total: Decimal | None, formatter: Formatter) -> str:
    if key not in shown:
        # The card has no room for this value; the object has it all the same.
        return ELLIPSIS if isinstance(item, dict) and key in item else ""
    return shown[key] if total is None else formatter.number(Decimal(str(item[key])), 0)


def _sum(key: str, objects: Sequence[Any]) -> Decimal | None:
    values = [item.get(key) if isinstance(item, dict) else None for item in objects]
    if not counts(key):
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    return sum((Decimal(str(value)) for value in values), Decimal(0))


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdecimal()
