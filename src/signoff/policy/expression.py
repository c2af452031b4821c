"""Checks one expression against the tool's schema, compiles it by both engines, and evaluates it in both."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cel_expr_python import cel

from signoff.contracts.errors import ConfigError
from signoff.policy import first_engine, second_engine
from signoff.policy.answer import EngineAnswer, EngineOutcome
from signoff.policy.bounded_expression import BoundedTask, bounded_outcomes, growth_problem, is_bounded
from signoff.policy.diagnosis import ErrorPlace, read_error, single_engine_problem
from signoff.policy.paths import ReferencedPaths, referenced_paths, spell, unchecked_paths, unguarded_paths
from signoff.policy.schema_shapes import DataShape
from signoff.policy.syntax import normalise, text_problem, tree_problem
from signoff.policy.type_check import typed_environment

Gives: TypeAlias = Literal["BOOL", "LIST"]
"""What an expression has to give: true or false, or a list of texts."""

EVALUATORS: Final = f"{first_engine.NAME} {first_engine.VERSION}, {second_engine.NAME} {second_engine.VERSION}"
_NOT_RUN: Final = EngineOutcome("error", "not run, the first engine has an error")
_BUILDING: Final = threading.Lock()


@dataclass(frozen=True)
class EngineInput:
    """Data in the form of each engine."""

    plain: Mapping[str, Any]
    celpy: Mapping[str, Any]


def facts(data: Mapping[str, Any]) -> EngineInput:
    """Converts `data` for both engines. It must be within bounds already."""
    return EngineInput(data, {name: second_engine.as_celpy(value) for name, value in data.items()})


@dataclass(frozen=True)
class Expression:
    """A checked expression. `rule` names its field, `findings` what could not be checked.

    One that is `bounded` is evaluated in a process with limits, and only over data that are not too large for it.
    """

    rule: str
    text: str
    first: first_engine.FirstProgram
    second: second_engine.SecondProgram
    findings: tuple[str, ...] = ()
    bounded: bool = False
    variables: tuple[str, ...] = ()
    reads_now: bool = False
    """Whether its answer may be another one at another moment."""

    def outcomes(self, data: EngineInput) -> tuple[EngineOutcome, EngineOutcome]:
        """Evaluates it in each engine. Never raises."""
        if self.bounded:
            return bounded_outcomes(self.second.tree, BoundedTask(self.text, self.variables, data.plain))
        return self.evaluate_here(data)

    def evaluate_here(self, data: EngineInput) -> tuple[EngineOutcome, EngineOutcome]:
        """Evaluates it in this very process, whatever it costs. Never raises."""
        # This order: celpy hangs for seconds to hours on hostile text that the first engine refuses in milliseconds.
        first = self.first.run(data.plain)
        return first, _NOT_RUN if first.kind == "error" else self.second.run(data.celpy)

    def ask(self, data: EngineInput) -> tuple[EngineAnswer, EngineAnswer]:
        """Returns both engines' answers. Never raises."""
        first, second = self.outcomes(data)
        return self.answers_from_outcomes(first, second)

    def answers_from_outcomes(self, first: EngineOutcome, second: EngineOutcome) -> tuple[EngineAnswer, EngineAnswer]:
        """Converts outcomes to answers without their values."""
        return (
            EngineAnswer(self.rule, first_engine.NAME, first.kind, first.note),
            EngineAnswer(self.rule, second_engine.NAME, second.kind, second.note),
        )


def check_timeless(expression: Expression, owner: str) -> None:
    """Raises `ConfigError` where an expression that says which tools there are reads `ctx.now`, or `ctx` whole."""
    # The model was offered its tools at another moment than that at which it calls one.
    if expression.reads_now:
        raise ConfigError(
            f"{owner}: `{expression.rule}` may not read `ctx.now`, as it says which tools there are; use the tool's "
            "`hours`",
            field=expression.rule,
            value=expression.text,
        )


class Compiler:
    """Compiles expressions over the same variables. `owner` begins every error, such as ``tool `x` ``."""

    def __init__(self, variables: Mapping[str, DataShape], owner: str, tool_name: str = "") -> None:
        self._variables = variables
        self._owner = owner
        self._tool_name = tool_name
        with _BUILDING:
            self._typed = typed_environment(variables)

    def compile(self, rule: str, source: str, *, gives: Gives = "BOOL") -> Expression:
        """Checks and compiles one expression. Raises `ConfigError`."""
        text = normalise(source)
        # Each step guards the next: text without end reaches no parser, and celpy reads only what type-checks.
        problem, column = text_problem(text)
        if problem:
            raise self._error(rule, text, problem, column)
        findings = self._check_types(rule, text, gives)
        first = first_engine.first_program(text, self._variables)
        try:
            second = second_engine.second_program(text)
        except Exception as error:
            message, column = single_engine_problem(error)
            raise self._error(rule, text, message, column) from None
        places = referenced_paths(second.tree, self._variables)
        findings += self._check_tree(rule, text, second, places)
        bounded = is_bounded(second.tree, self._variables)
        return Expression(
            rule, text, first, second, findings, bounded, tuple(sorted(self._variables)), self._reads_now(places)
        )

    def _check_types(self, rule: str, text: str, gives: Gives) -> tuple[str, ...]:
        try:
            kind = self._typed.compile(text).return_type().name()
        except Exception as error:
            message, column = read_error(str(error), ErrorPlace(text, self._variables))
            raise self._error(rule, text, message, column) from None
        # Unknown is no error here: when it is evaluated, only an exact boolean of both engines counts.
        if kind == cel.Type.DYN.name():
            return (f"`{rule}`: not checked: the type of the result",)
        # What is in a list of DYN is looked at when it is evaluated, by `_people` of policy/compiled_policy.py.
        wanted = kind == "BOOL" if gives == "BOOL" else kind in ("LIST<STRING>", "LIST<DYN>")
        if not wanted:
            need = "true or false" if gives == "BOOL" else "a list of strings"
            raise self._error(rule, text, f"the result is {kind.lower()}, it must be {need}", 0)
        return ()

    def _reads_now(self, places: ReferencedPaths) -> bool:
        ctx = self._variables.get("ctx")
        read = places.used | places.guarded
        # Of `ctx` as a whole nobody knows which of it counts.
        return ctx is not None and "now" in ctx.fields and any(p[:2] in (("ctx",), ("ctx", "now")) for p in read)

    def _check_tree(
        self, rule: str, text: str, second: second_engine.SecondProgram, places: ReferencedPaths
    ) -> tuple[str, ...]:
        problem = tree_problem(second.tree) or growth_problem(second.tree, self._variables)
        if problem:
            raise self._error(rule, text, problem, 0)
        # Refused now: where it is absent, `deny_if` would deny every call and `auto_approve_if` let none through,
        # unseen.
        for path in unguarded_paths(places, self._variables):
            name = spell(path)
            message = f"`{name}` is optional; ask `has({name}) && ...` first, else its absence is an error"
            raise self._error(rule, text, message, 0)
        return tuple(f"`{rule}`: not checked: `{spell(path)}`" for path in unchecked_paths(places, self._variables))

    def _error(self, rule: str, text: str, problem: str, column: int) -> ConfigError:
        where = f" column {column}" if column else ""
        shown = text if len(text) <= 300 else f"{text[:300]}..."
        return ConfigError(
            f"{self._owner}: `{rule}`{where}: {problem} (in `{shown}`)",
            tool_name=self._tool_name,
            field=rule,
            value=text,
            column=column,
        )
