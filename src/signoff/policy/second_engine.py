"""Evaluates by celpy, with CEL's own operators, only what the first engine has already passed."""

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib.metadata import version
from typing import Any, Final

import celpy
import lark
from celpy import celtypes
from celpy.evaluation import Activation, CELEvalError, Evaluator

from signoff.contracts.limits import POLICY_STEPS
from signoff.policy.answer import EngineOutcome
from signoff.policy.operators import FUNCTIONS, find, logical_and, logical_or

NAME: Final = "cel-python"
VERSION: Final = version("cel-python")
_CHAIN: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}
)
_SAFE_NOTES: Final = (
    "no such overload",
    "no such key",
    "no such member in mapping",
    "found no matching overload",
    "undeclared reference",
    "divide by zero",
    "modulus or divide by zero",
    "return error for overflow",
    "invalid_argument",
    "too many steps",
)
_COMPILING: Final = threading.Lock()
_JOINED: Final[Mapping[str, tuple[Callable[[Any, Any], Any], bool]]] = {
    "all": (logical_and, True),
    "exists": (logical_or, False),
}
"""By which operator a macro joins its rounds, and what none of them comes to."""
# It writes the values it evaluates, that is the call's arguments, at levels from debug to error.
logging.getLogger("celpy").setLevel(logging.CRITICAL)


# No CELEvalError: celpy makes a value of one that is raised within a macro, which `exists` or `||` can absorb.
class VisitLimitExceeded(Exception):
    """Raised where a macro visits more places than any policy needs."""


class _Evaluator(Evaluator):
    """Extends celpy's evaluator by a budget of visits within macros, and by `has()` as the specification has it."""

    def __init__(self, ast: lark.Tree[lark.Token], activation: Activation, left: list[int], visits: int) -> None:
        super().__init__(ast, activation)
        # A list, so that the evaluators of macros within macros share one budget.
        self._left = left
        self._visits = visits

    def sub_evaluator(self, ast: lark.Tree[lark.Token]) -> Evaluator:
        # A round costs as much as its body is large: of a long one fewer rounds are one second.
        return _Evaluator(ast, self.activation, self._left, sum(1 for _ in ast.iter_subtrees()))

    def evaluate(self, context: Any = None) -> Any:
        self._left[0] -= self._visits
        if self._left[0] < 0:
            raise VisitLimitExceeded("too many steps")
        return super().evaluate(context)

    def set_activation(self, values: Any) -> Evaluator:
        # celpy's own copies the whole activation, once for each round of a macro.
        self.activation = self.base_activation.nested_activation(vars=values)
        return self

    def member_dot_arg(self, tree: lark.Tree[lark.Token]) -> Any:
        joined = _JOINED.get(str(tree.children[1]))
        if joined is None:
            return super().member_dot_arg(tree)
        join, begins = joined
        items: Any = self.visit(tree.children[0])  # type: ignore[arg-type]
        if isinstance(items, CELEvalError):
            return items
        return reduce(join, map(self.build_ss_macro_eval(tree), items), celtypes.BoolType(begins))

    # celpy's own makes false of an error in what stands before the point: `!has(typo.x)` would be true.
    def macro_has_eval(self, exprlist: lark.Tree[lark.Token]) -> Any:
        operand = exprlist.children[0]
        if not isinstance(operand, lark.Tree) or operand.data != "member_dot":
            return CELEvalError("no such overload")
        holder, name = operand.children
        inner: Any = self.visit(holder) if isinstance(holder, lark.Tree) else None
        if isinstance(inner, CELEvalError):
            return inner
        if not isinstance(inner, celtypes.MapType):
            return CELEvalError("no such overload")
        return celtypes.BoolType(find(inner, celtypes.StringType(str(name)))[0])


# Never CompiledRunner: under threads it gave wrong answers, and `has()` and functions of one's own are broken there.
class _Runner(celpy.InterpretedRunner):
    def evaluate(self, context: Any) -> Any:
        return _Evaluator(self.ast, self.new_activation(), [POLICY_STEPS + 1], 1).evaluate(context)


@dataclass(frozen=True)
class SecondProgram:
    """One compiled expression; `tree` is its syntax without the links of one child."""

    runner: _Runner
    tree: lark.Tree[lark.Token]

    def run(self, data: Mapping[str, Any]) -> EngineOutcome:
        """Evaluates the expression over celpy values (`as_celpy`). Never raises."""
        try:
            value = self.runner.evaluate(data)
            # The very type: celpy's boolean is an int, and a text or a number would be truthy.
            if isinstance(value, celtypes.BoolType):
                return EngineOutcome("true") if bool(value) else EngineOutcome("false")
            return EngineOutcome("other", f"a {type(value).__name__}", _plain(value))
        except Exception as error:
            # Beside CELEvalError come TypeError, KeyError, OverflowError, RecursionError and others: none may pass for
            # an answer.
            return EngineOutcome("error", _note(error))


@cache
def _environment() -> celpy.Environment:
    """Makes the environment with the first expression: reading CEL's grammar is a tenth of a worker's start."""
    # celpy sets the limit of the whole process to 2,500.
    limit = sys.getrecursionlimit()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            made = celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)
    # Protobuf names: policies have none, and they cost a walk at each evaluation.
    made.annotations.clear()
    return made


def second_program(text: str, functions: Mapping[str, Callable[..., Any]] = FUNCTIONS) -> SecondProgram:
    """Compiles an expression. Raises celpy's `CELParseError` or another exception when it cannot be read."""
    # lark can print, which would break a protocol on stdout. The redirection is the process's: one thread at a time.
    with _COMPILING, contextlib.redirect_stdout(io.StringIO()):
        environment = _environment()
        tree = _shorten(environment.compile(text))
    # Not `Environment.program()`: it can hand out another thread's program.
    return SecondProgram(_Runner(environment, tree, dict(functions)), tree)


def _shorten(tree: lark.Tree[lark.Token]) -> lark.Tree[lark.Token]:
    """Drops grammar links of one child: the evaluator recurses several frames for each of them."""
    while len(tree.children) == 1:
        child = tree.children[0]
        if not isinstance(child, lark.Tree):
            break
        if tree.data in _CHAIN or tree.data == "paren_expr" or (tree.data == "primary" and child.data == "paren_expr"):
            tree = child
        else:
            break
    children = [_shorten(child) if isinstance(child, lark.Tree) else child for child in tree.children]
    return lark.Tree(tree.data, children, tree.meta)


def as_celpy(value: Any) -> Any:
    """Converts plain JSON to celpy values."""
    match value:
        case bool():
            return celtypes.BoolType(value)
        case int():
            return celtypes.IntType(value)
        case float():
            return celtypes.DoubleType(value)
        case str():
            return celtypes.StringType(value)
        case list() | tuple():
            return celtypes.ListType([as_celpy(item) for item in value])
        case Mapping():
            return celtypes.MapType({celtypes.StringType(name): as_celpy(item) for name, item in value.items()})
        case _:
            return None


def _plain(value: Any) -> Any:
    if isinstance(value, celtypes.ListType):
        return [str(item) if isinstance(item, str) else item for item in value]
    return value


def _note(error: Exception) -> str:
    # celpy's messages hold the whole activation, that is the call's arguments: only what is known to be bare goes out.
    text = str(error.args[0]) if error.args else ""
    return next((note for note in _SAFE_NOTES if text.startswith(note)), type(error).__name__)
