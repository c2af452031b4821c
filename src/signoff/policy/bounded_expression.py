"""Evaluates expressions whose cost grows faster than their data.

The data's size is checked first, and the evaluation runs in a process with limits of memory and time. The process is
behind a protocol, set once at the program's start, so this module does no I/O. If none is set, such an expression is an
error, which asks or denies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import lark

from signoff.contracts.limits import (
    MAX_VALUES,
    MIB,
    POLICY_BOUNDED_BYTES,
    POLICY_BOUNDED_STEPS,
    POLICY_DEGREE,
    POLICY_FACTOR,
    POLICY_PLAIN_BYTES,
    POLICY_PLAIN_STEPS,
    POLICY_TEXT_BYTES,
)
from signoff.policy.answer import EngineOutcome
from signoff.policy.cost import STEP, cost_of, growth, sizes_at_most
from signoff.policy.extent import counted_extents
from signoff.policy.schema_shapes import DataShape

_REMEDY: Final = "ask for less at once, or decide it in a `handler`"


@dataclass(frozen=True)
class BoundedTask:
    """One expression over plain JSON data, for both engines."""

    text: str
    variables: tuple[str, ...]
    data: Mapping[str, Any]


class Evaluator(Protocol):
    """Evaluates expressions within limits of memory and time."""

    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        """Return errors if a limit is exceeded. Blocks, and never raises."""


class NoEvaluator:
    """Evaluates nothing, in a program that has set no evaluator."""

    def evaluate(self, task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
        return failed_outcomes("this program has no process for it; call `signoff.policypool.install()` at its start")


@dataclass
class _Program:
    evaluator: Evaluator


_PROGRAM: Final = _Program(NoEvaluator())


def set_evaluator(evaluator: Evaluator) -> None:
    _PROGRAM.evaluator = evaluator


def current_evaluator() -> Evaluator:
    return _PROGRAM.evaluator


def failed_outcomes(why: str) -> tuple[EngineOutcome, EngineOutcome]:
    outcome = EngineOutcome("error", why)
    return outcome, outcome


def growth_problem(tree: lark.Tree[lark.Token], variables: Mapping[str, DataShape]) -> str:
    """Return why an expression may cost too much over some data, with the remedy, or ""."""
    rate = growth(tree, variables)
    if rate.degree > POLICY_DEGREE:
        much = f"its cost grows with the {_ordinal(rate.degree)} power of the size of the data"
        return f"{much}, at most the {_ordinal(POLICY_DEGREE)} is allowed; {_REMEDY}"
    if rate.factor > POLICY_FACTOR * STEP:
        return f"it takes more than {POLICY_FACTOR} times the size of the data in steps or bytes; {_REMEDY}"
    return ""


def is_bounded(tree: lark.Tree[lark.Token], variables: Mapping[str, DataShape]) -> bool:
    """Return whether large data make an expression so costly that it must run within limits."""
    if growth(tree, variables).degree > 1:
        return True
    worst = cost_of(tree, sizes_at_most(variables, nodes=MAX_VALUES, text=POLICY_TEXT_BYTES))
    return worst.steps > POLICY_PLAIN_STEPS or worst.memory > POLICY_PLAIN_BYTES


def bounded_outcomes(tree: lark.Tree[lark.Token], task: BoundedTask) -> tuple[EngineOutcome, EngineOutcome]:
    """Return errors if the data are too large. `tree` is the task's syntax. Never raises."""
    try:
        cost = cost_of(tree, counted_extents(task.data))
        if cost.steps > POLICY_BOUNDED_STEPS:
            return failed_outcomes(f"over these data it may take more than {POLICY_BOUNDED_STEPS} steps")
        if cost.memory > POLICY_BOUNDED_BYTES:
            return failed_outcomes(f"over these data it may take more than {POLICY_BOUNDED_BYTES // MIB} MiB")
        return current_evaluator().evaluate(task)
    except Exception as error:
        return failed_outcomes(f"it cannot be evaluated ({type(error).__name__})")


def _ordinal(power: int) -> str:
    return {2: "second", 3: "third"}.get(power, f"{power}th")
