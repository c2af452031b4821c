"""The tables of CEL's grammar in the package, and those that lark computes from celpy's file."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import celpy
import lark
import lark.grammar
import lark.lexer
import pytest
from celpy.celparser import CELParser

from signoff.policy.cel_grammar import load_parser


@pytest.fixture(scope="module")
def computed() -> lark.Lark:
    """The parser that celpy makes without the tables."""
    present = CELParser.CEL_PARSER
    CELParser.CEL_PARSER = None
    try:
        # celpy makes it in debug mode, which prints.
        with contextlib.redirect_stdout(io.StringIO()):
            celpy.Environment()
        made = CELParser.CEL_PARSER
    finally:
        CELParser.CEL_PARSER = present
    assert isinstance(made, lark.Lark)
    return made


def steps(parser: lark.Lark) -> list[dict[str, Any]]:
    """The actions of each state by token, with states numbered in the order of their discovery."""
    table: Any = parser.parser.parser.parser.parse_table  # type: ignore[attr-defined]
    numbers = {table.start_states["expr"]: 0}
    found: list[dict[str, Any]] = []
    for state in discovered(numbers):
        actions: dict[str, Any] = {}
        for token, (action, argument) in sorted(table.states[state].items()):
            name = type(action).__name__ if isinstance(action, type) else str(action)
            is_state = argument in table.states
            actions[token] = (name, numbers.setdefault(argument, len(numbers)) if is_state else str(argument))
        found.append(actions)
    return found


def discovered(numbers: dict[Any, int]) -> Iterator[Any]:
    """Yield the keys in order, including keys added meanwhile."""
    done = 0
    while done < len(numbers):
        yield list(numbers)[done]
        done += 1


def test_shipped_tables_equal_the_tables_computed_by_lark(computed: lark.Lark) -> None:
    shipped = load_parser()
    assert shipped is not None, "run `python -m tools.cel_grammar`"
    assert steps(shipped) == steps(computed)
    assert len(steps(shipped)) > 100
    assert shipped.lexer_conf.ignore == computed.lexer_conf.ignore
    assert sorted(map(terminal, shipped.terminals)) == sorted(map(terminal, computed.terminals))
    assert {rule(each) for each in shipped.rules} == {rule(each) for each in computed.rules}
    options = vars(shipped.options)["options"]
    # In debug mode celpy's parser prints its states for each wrong expression.
    assert options == {**vars(computed.options)["options"], "debug": False, "source_path": options["source_path"]}


def terminal(found: lark.lexer.TerminalDef) -> tuple[str, int, str]:
    return found.name, found.priority, repr(found.pattern)


def rule(found: lark.grammar.Rule) -> tuple[str, str, str | None]:
    return str(found), repr(found.options), found.alias


@pytest.mark.parametrize("part", ["lark", "grammar"])
def test_tables_of_another_release_are_not_used(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    if part == "lark":
        monkeypatch.setattr(lark, "__version__", "0.1")
    else:
        monkeypatch.setattr("signoff.policy.cel_grammar._grammar", lambda: "start: X")
    assert load_parser() is None
