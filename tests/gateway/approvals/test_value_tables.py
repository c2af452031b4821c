from datetime import UTC, datetime
from typing import Any

from tables import table

from signoff.approvals.unseen_values import every_value
from signoff.gateway.approvals.value_tables import Cell, ValueTable, find_tables
from signoff.texts.formatter import Formatter

LINES = [{"sku": "A-1001", "qty": 3, "total": 37.5}, {"sku": "Z-9000", "qty": 1000, "total": 7000}]


def tables_of(args: dict[str, Any], *, language: str = "en", drawn: int | None = None) -> list[int | ValueTable]:
    values = every_value(args, {}, ())[:drawn]
    cells = [Cell(each.name, each.label, each.text, is_short="\n" not in each.text) for each in values]
    return find_tables(cells, args, Formatter(language, UTC, datetime(2026, 11, 28, tzinfo=UTC)))


def test_list_of_objects_is_a_table_with_header_separators_and_sums() -> None:
    to, table = tables_of({"to": "Ana", "lines": LINES})
    assert to == 0
    assert table == ValueTable(
        label="Lines",
        columns=("Sku", "Qty", "Total"),
        numeric=(False, True, True),
        rows=(("1", ("A-1001", "3", "37.5")), ("2", ("Z-9000", "1,000", "7,000"))),
        sums=("", "1,003", "7,037.5"),
        total=2,
        ranges=("Qty: 3 to 1,000 (entry 2), 1,003 in all", "Total: 37.5 to 7,000 (entry 2), 7,037.5 in all"),
    )


def test_sums_are_formatted_for_the_language() -> None:
    (table,) = tables_of({"lines": LINES}, language="de")
    assert isinstance(table, ValueTable)
    assert table.sums == ("", "1.003", "7.037,5")


def test_sum_of_a_truncated_list_counts_every_object() -> None:
    (table,) = tables_of({"lines": [*LINES, *LINES]}, drawn=7)
    assert isinstance(table, ValueTable)
    assert table.rows[-1] == ("3", ("A-1001", "…", "…"))
    assert (table.sums, table.total) == (("", "2,006", "14,075"), 4)


def test_range_of_a_truncated_list_names_its_greatest_entry() -> None:
    lines = [{"to": f"Person {n}", "amount": 3_000 + n} for n in range(60)]
    lines[41] |= {"amount": 93_000}
    (table,) = tables_of({"lines": lines}, drawn=20)
    assert isinstance(table, ValueTable)
    assert table.ranges == ("Amount: 3,000 to 93,000 (entry 42), 271,729 in all",)


@table("key", "account", "year", "invoice_no", "orderId")
def test_numeric_names_have_no_sum_and_no_separators(key: str) -> None:
    (table,) = tables_of({"lines": [{key: 12345678, "to": "Ana"}, {key: 87654321, "to": "Bo"}]})
    assert isinstance(table, ValueTable)
    assert table.rows[0][1][0] == "12345678"
    assert (table.sums, table.ranges) == ((), ())


@table(
    "lines",
    [{"sku": "A", "qty": 1}],
    [{"sku": "A", "tags": {"a": 1}}, {"sku": "B", "tags": {"a": 2}}],
    [{"sku": "A", "note": "one\ntwo"}, {"sku": "B", "note": "three"}],
    [{"a\u202eb": 1, "c": 2}, {"a\u202eb": 3, "c": 4}],
    [{f"key{number}": "x" for number in range(7)}] * 2,
    ids=["one object", "nested objects", "a long text", "a key with marks", "too many columns"],
)
def test_uneven_list_shows_one_value_per_line(lines: list[dict[str, Any]]) -> None:
    parts = tables_of({"lines": lines})
    assert parts == list(range(len(parts)))


def test_absent_value_is_an_empty_cell_and_mixed_column_has_no_sum() -> None:
    (table,) = tables_of({"lines": [{"sku": "A", "qty": 1}, {"sku": "B"}, {"sku": "C", "qty": "3"}]})
    assert isinstance(table, ValueTable)
    assert [cells for _, cells in table.rows] == [("A", "1"), ("B", ""), ("C", '"3"')]
    assert table.sums == ()


def test_amounts_of_one_currency_carry_it() -> None:
    (table,) = tables_of({"lines": [{"amount": 3_000, "currency": "EUR"}, {"amount": 93_000, "currency": "EUR"}]})
    assert isinstance(table, ValueTable)
    assert table.ranges == ("Amount: 3,000 to 93,000 EUR (entry 2), 96,000 EUR in all",)
    assert table.sums == ("96,000 EUR", "")


def test_amounts_of_different_currencies_are_never_summed_together() -> None:
    pairs = (("JPY", 900), ("EUR", 5), ("JPY", 100), ("none", 7))
    (table,) = tables_of({"lines": [{"currency": code, "amount": amount, "qty": 1} for code, amount in pairs]})
    assert isinstance(table, ValueTable)
    assert table.ranges == (
        "Amount: 100 to 900 JPY (entry 1), 1,000 JPY in all",
        "Amount: 7 to 7 (entry 4), 7 in all",
        "Amount: 5 to 5 EUR (entry 2), 5 EUR in all",
        "Qty: 1 to 1 (entry 1), 4 in all",
    )
    assert table.sums == ("", "1,000 JPY, 7, 5 EUR", "4")


def test_many_currencies_show_the_greatest_amounts() -> None:
    codes = ("AAA", "BBB", "CCC", "DDD", "EEE", "FFF")
    (table,) = tables_of({"lines": [{"currency": code, "amount": at} for at, code in enumerate(codes, 1)]})
    assert isinstance(table, ValueTable)
    assert [each[:18] for each in table.ranges] == [f"Amount: {n} to {n} {codes[n - 1]}" for n in (6, 5, 4, 3)] + ["…"]
