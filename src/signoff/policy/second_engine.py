"""Evaluates with celpy and the specification's operators, after the first engine."""

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
from celpy.celparser import CELParser
from celpy.evaluation import Activation, CELEvalError, Evaluator

from signoff.contracts.limits import POLICY_STEPS
from signoff.policy.answer import EngineOutcome
from signoff.policy.cel_grammar import load_parser
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
"""The operator that joins a macro's rounds, and its result for no rounds."""
# It logs the values that it evaluates, which are the call's arguments, at levels from debug to error.
logging.getLogger("celpy").setLevel(logging.CRITICAL)


# Not a CELEvalError: celpy turns one that is raised in a macro into a value, which `exists` or `||` can absorb.
class VisitLimitExceeded(Exception):
    """Raised if a macro visits more places than any policy needs."""


class _Evaluator(Evaluator):
    """Extends celpy's evaluator by a limit of visits and by the specification's `has()`."""

    def __init__(self, ast: lark.Tree[lark.Token], activation: Activation, left: list[int], visits: int) -> None:
        super().__init__(ast, activation)
        # A list, so that the evaluators of nested macros share one limit.
        self._left = left
        self._visits = visits

    def sub_evaluator(self, ast: lark.Tree[lark.Token]) -> Evaluator:
        # A round costs as much as its body is large: with a long body, fewer rounds take a second.
        return _Evaluator(ast, self.activation, self._left, sum(1 for _ in ast.iter_subtrees()))

    def evaluate(self, context: Any = None) -> Any:
        self._left[0] -= self._visits
        if self._left[0] < 0:
            raise VisitLimitExceeded("too many steps")
        return super().evaluate(context)

    def set_activation(self, values: Any) -> Evaluator:
        # celpy copies the whole activation for each round of a macro.
        self.activation = self.base_activation.nested_activation(vars=values)
        return self

    def member_dot_arg(self, tree: lark.Tree[lark.Token]) -> Any:
        joining = _JOINED.get(str(tree.children[1]))
        if joining is None:
            return super().member_dot_arg(tree)
        join, begins = joining
        items: Any = self.visit(tree.children[0])  # type: ignore[arg-type]
        if isinstance(items, CELEvalError):
            return items
        return reduce(join, map(self.build_ss_macro_eval(tree), items), celtypes.BoolType(begins))

    # celpy returns false for an error before the point, so that `!has(typo.x)` would be true.
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


# Never use CompiledRunner: it gave wrong results with threads, and breaks `has()` and custom functions.
class _Runner(celpy.InterpretedRunner):
    def evaluate(self, context: Any) -> Any:
        return _Evaluator(self.ast, self.new_activation(), [POLICY_STEPS + 1], 1).evaluate(context)


@dataclass(frozen=True)
class SecondProgram:
    """One compiled expression. `tree` is its syntax without grammar links of one child."""

    runner: _Runner
    tree: lark.Tree[lark.Token]

    def run(self, data: Mapping[str, Any]) -> EngineOutcome:
        """`data` are celpy values (`as_celpy`). Never raises."""
        try:
            value = self.runner.evaluate(data)
            # Check the exact type: celpy's boolean is an int, and a text or a number would be truthy.
            if isinstance(value, celtypes.BoolType):
                return EngineOutcome("true") if bool(value) else EngineOutcome("false")
            return EngineOutcome("other", f"a {type(value).__name__}", _plain(value))
        except Exception as error:
            # Besides CELEvalError there are TypeError, KeyError, OverflowError, RecursionError and others. None may
            # pass for an answer.
            return EngineOutcome("error", _note(error))


@cache
def _environment() -> celpy.Environment:
    # celpy takes the parser of this class if there is one.
    CELParser.CEL_PARSER = load_parser()
    # celpy sets the recursion limit of the whole process to 2,500.
    limit = sys.getrecursionlimit()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            environment = celpy.Environment()
    finally:
        sys.setrecursionlimit(limit)
    # Protobuf names: policies have none, and they cost a walk at each evaluation.
    environment.annotations.clear()
    return environment


def second_program(text: str, functions: Mapping[str, Callable[..., Any]] = FUNCTIONS) -> SecondProgram:
    """Raise celpy's `CELParseError` or another exception for invalid text."""
    # lark may print, which would break a protocol on stdout. The redirection affects the whole process, so allow one
    # thread at a time.
    with _COMPILING, contextlib.redirect_stdout(io.StringIO()):
        environment = _environment()
        tree = _shorten(environment.compile(text))
    # Do not use `Environment.program()`: it can return another thread's program.
    return SecondProgram(_Runner(environment, tree, dict(functions)), tree)


def _shorten(tree: lark.Tree[lark.Token]) -> lark.Tree[lark.Token]:
    """The evaluator uses several stack frames for each grammar link of one child."""
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
    # celpy's messages contain the whole activation, with the call's arguments. Return only notes known to be safe.
    text = str(error.args[0]) if error.args else ""
    return next((note for note in _SAFE_NOTES if text.startswith(note)), type(error).__name__)
