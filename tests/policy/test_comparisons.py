from decimal import Decimal
from typing import Any

from tables import table

from signoff.policy.comparisons import deciding_comparisons
from signoff.policy.second_engine import second_program

ARGS: dict[str, Any] = {"amount": 420, "price": 0.3, "to": "Ana", "urgent": True, "trip": {"days": 5}}


def deciding(text: str, *, result: bool = True) -> list[str]:
    found = deciding_comparisons(second_program(text).tree, ARGS, result=result)
    return [f"{each.name} {each.sign} {each.limit}" for each in found]


@table(
    ("text", "expected"),
    ("args.amount > 50.0", ["amount > 50.0"]),
    ("50.0 < args.amount", ["amount > 50.0"]),
    ("args.amount >= 420", ["amount ≥ 420"]),
    ("args.price == 0.3", ["price = 0.3"]),
    ("args.to != 'Bo' && args.amount > 50.0", ["to ≠ Bo", "amount > 50.0"]),
    ("args.amount < 50.0 || args.trip.days > 3", ["trip.days > 3"]),
    ("!(args.amount < 50.0)", ["amount ≥ 50.0"]),
    ("!(args.amount < 50.0 || args.to == 'Bo')", ["amount ≥ 50.0", "to ≠ Bo"]),
    ("(args.amount > 50.0) && ctx.channel == 'mail'", ["amount > 50.0"]),
    ("(args.amount > 50.0 && args.to == 'Bo') || args.trip.days > 3", ["trip.days > 3"]),
    ("(args.amount > 50.0 && args.to == 'Ana') || args.trip.days > 9", ["amount > 50.0", "to = Ana"]),
    ("(args.amount > 50.0 && ctx.channel == 'mail') || args.trip.days > 3", ["trip.days > 3"]),
)
def test_comparison_that_gave_true_is_found(text: str, expected: list[str]) -> None:
    assert deciding(text) == expected


@table(
    ("text", "expected"),
    ("args.amount < 50.0", ["amount ≥ 50.0"]),
    ("args.amount < 50.0 && args.to == 'Ana'", ["amount ≥ 50.0"]),
    ("args.amount > 50.0 && args.to != 'Ana'", ["to = Ana"]),
    ("(args.amount < 50.0 || args.trip.days > 3) && args.to == 'Bo'", ["to ≠ Bo"]),
)
def test_comparison_that_gave_false_is_found_as_its_opposite(text: str, expected: list[str]) -> None:
    assert deciding(text, result=False) == expected


@table(
    "text",
    "args.to > 'A'",
    "args.to == 'a\\\\n'",
    "args.urgent == true",
    "args.amount > args.trip.days",
    "double(args.amount) > 50.0",
    "args.amount + 1 > 50",
    "ctx.amount > 50.0",
    "args.absent > 50.0",
    "args.to in ['Ana']",
    "args.urgent ? args.amount > 50.0 : false",
    "[1, 2].exists(args, args.amount > 50.0)",
    "args.to == 5",
)
def test_other_condition_is_left_out(text: str) -> None:
    assert deciding(text) == []


def test_limit_keeps_the_digits_of_the_expression() -> None:
    (found,) = deciding_comparisons(second_program("args.amount > 0.1").tree, ARGS, result=True)
    assert found.limit == Decimal("0.1")
