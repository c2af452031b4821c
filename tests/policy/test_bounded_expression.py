from typing import Any

import pytest
from policy_samples import SCHEMA
from tables import table

from signoff.contracts.limits import POLICY_DEGREE
from signoff.policy import bounded_expression
from signoff.policy.answer import EngineOutcome
from signoff.policy.bounded_expression import (
    BoundedTask,
    NoEvaluator,
    bounded_outcomes,
    failed_outcomes,
    growth_problem,
    is_bounded,
)
from signoff.policy.cost import Cost
from signoff.policy.schema_shapes import read_schema
from signoff.policy.second_engine import second_program

VARIABLES = {"args": read_schema(SCHEMA)}
NESTED = "args.numbers.all({0}, {1})"


def tree(text: str) -> Any:
    return second_program(text).tree


def of_degree(degree: int) -> str:
    text = "x0 > 0.0"
    for name in reversed([f"x{number}" for number in range(degree)]):
        text = NESTED.format(name, text)
    return text


@table(("degree", "power"), (3, "third"), (5, "5th"))
def test_growth_above_the_second_power_is_refused(degree: int, power: str) -> None:
    problem = growth_problem(tree(of_degree(degree)), VARIABLES)
    assert problem == (
        f"its cost grows with the {power} power of the size of the data, at most the second is allowed; "
        "ask for less at once, or decide it in a `handler`"
    )
    assert growth_problem(tree(of_degree(POLICY_DEGREE)), VARIABLES) == ""


def test_powers_are_named_by_ordinals() -> None:
    assert [bounded_expression._ordinal(power) for power in (2, 3, 4, 11)] == ["second", "third", "4th", "11th"]


def test_only_superlinear_expressions_are_bounded() -> None:
    assert [is_bounded(tree(of_degree(degree)), VARIABLES) for degree in (0, 1, 2)] == [False, False, True]


def test_missing_evaluator_is_an_error_in_both_engines() -> None:
    why = "this program has no process for it; call `signoff.policypool.install()` at its start"
    task = BoundedTask("true", (), {})
    assert NoEvaluator().evaluate(task) == (EngineOutcome("error", why), EngineOutcome("error", why))
    assert failed_outcomes("why")[0].note == "why"


@table(
    ("cost", "note"),
    (Cost(8_192 * bounded_expression.POLICY_BOUNDED_STEPS, bounded_expression.POLICY_BOUNDED_BYTES), ""),
    (
        Cost(8_192 * bounded_expression.POLICY_BOUNDED_STEPS + 1),
        f"over these data it may take more than {bounded_expression.POLICY_BOUNDED_STEPS} steps",
    ),
    (
        Cost(memory=bounded_expression.POLICY_BOUNDED_BYTES + 1),
        f"over these data it may take more than {bounded_expression.POLICY_BOUNDED_BYTES >> 20} MiB",
    ),
)
def test_oversized_data_is_not_evaluated(cost: Cost, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_expression, "cost_of", lambda *given: cost)
    monkeypatch.setattr(bounded_expression._PROGRAM, "evaluator", Always())
    found = bounded_outcomes(tree("true"), BoundedTask("true", (), {}))
    assert found == ((EngineOutcome("true"),) * 2 if not note else failed_outcomes(note))


def test_failing_evaluator_gives_an_error_with_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_expression._PROGRAM, "evaluator", None)
    found = bounded_outcomes(tree("true"), BoundedTask("true", (), {}))
    assert found == failed_outcomes("it cannot be evaluated (AttributeError)")


class Always:
    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        return EngineOutcome("true"), EngineOutcome("true")
