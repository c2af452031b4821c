"""Evaluates by cel-expr-python, the binding of Google's C++ runtime; first, as it rejects hostile input in
milliseconds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from cel_expr_python import cel

from signoff.policy.answer import EngineOutcome
from signoff.policy.operators import lower_ascii, split_text, upper_ascii

NAME: Final = "cel-expr-python"
VERSION: Final = version("cel-expr-python")


# The engine's own operators, so that `includes` compares as `in` and `contains` do; celpy's has other code (operators).
_IN: Final = cel.NewEnv(variables={"holder": cel.Type.DYN, "item": cel.Type.DYN}).compile("item in holder")


def _is_in(holder: list[Any], item: Any) -> bool:
    found = _IN.eval(data={"holder": holder, "item": item})
    if found.type() != cel.Type.BOOL:
        raise TypeError("no such overload")
    return found.value() is True


# At run time an overload of DYN takes nothing: one for each kind that JSON and CEL have.
_ITEMS: Final = (
    *(cel.Type.NULL, cel.Type.BOOL, cel.Type.INT, cel.Type.UINT, cel.Type.DOUBLE, cel.Type.STRING, cel.Type.BYTES),
    *(cel.Type.LIST, cel.Type.MAP, cel.Type.TIMESTAMP, cel.Type.DURATION),
)
INCLUDES: Final = cel.FunctionDecl(
    "includes",
    [
        cel.Overload(
            "string_includes_string", cel.Type.BOOL, [cel.Type.STRING, cel.Type.STRING], True, str.__contains__
        ),
        *(
            cel.Overload(f"list_includes_{kind.name().lower()}", cel.Type.BOOL, [cel.Type.LIST, kind], True, _is_in)
            for kind in _ITEMS
        ),
    ],
)
"""JavaScript's `list.includes(item)` and `text.includes(part)`, as the designs write rules over tags (B78)."""


def _join(items: list[Any], separator: str) -> str:
    if any(not isinstance(each, str) for each in items):
        raise TypeError("no such overload")
    return separator.join(items)


_TEXT: Final = cel.Type.STRING
EXTENSIONS: Final = (
    INCLUDES,
    cel.FunctionDecl("lowerAscii", [cel.Overload("string_lower_ascii", _TEXT, [_TEXT], True, lower_ascii)]),
    cel.FunctionDecl("upperAscii", [cel.Overload("string_upper_ascii", _TEXT, [_TEXT], True, upper_ascii)]),
    cel.FunctionDecl("split", [cel.Overload("string_split_string", cel.Type.LIST, [_TEXT, _TEXT], True, split_text)]),
    cel.FunctionDecl("join", [cel.Overload("list_join_string", _TEXT, [cel.Type.LIST, _TEXT], True, _join)]),
)
"""The functions beyond CEL's own: `includes`, and those of CEL's string extension whose cost is known."""


@dataclass(frozen=True)
class FirstProgram:
    """One expression over variables of type DYN, so that an absent field is an error, never 0 or false."""

    expression: cel.Expression

    def run(self, data: Mapping[str, Any]) -> EngineOutcome:
        """Evaluates the expression over plain JSON data. Never raises."""
        try:
            value = self.expression.eval(data=dict(data))
            # An error is returned, not raised, as a value whose text is truthy: the type is asked before anything else.
            kind = value.type()
            if kind == cel.Type.BOOL:
                return EngineOutcome("true") if value.value() is True else EngineOutcome("false")
            if kind == cel.Type.ERROR:
                return EngineOutcome("error", _note(str(value.value())))
            return EngineOutcome("other", f"a {kind.name().lower()}", value.plain_value())
        except Exception as error:
            return EngineOutcome("error", _note(str(error)))


def first_program(text: str, variables: Iterable[str]) -> FirstProgram:
    """Compiles an expression. Raises `RuntimeError` with the compiler's messages."""
    return FirstProgram(_environment(tuple(sorted(variables))).compile(text))


# There are three sets of variables: those of policies, of rules and filters, and of remembered answers.
@lru_cache(maxsize=16)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN), functions=list(EXTENSIONS))


def _note(text: str) -> str:
    # What follows ` : ` may quote the data, except where it lists types.
    line = text.partition("\n")[0]
    code, _, rest = line.partition(": ")
    message = rest if code.isupper() else line
    head, _, tail = message.partition(" : ")
    shown = f"{head}: {tail}" if head == "No matching overloads found" else head
    return shown.removesuffix(" [INTERNAL]")[:200]
