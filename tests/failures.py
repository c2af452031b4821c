import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from documents import ROOT, page, parsed

PAGE = "docs/failures.md"
MARKER = "failure"
_CODE = re.compile(r"(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Row(NamedTuple):
    words: str
    meaning: str
    remedy: str


def failure_rows(text: str | None = None) -> list[Row]:
    lines = (page(PAGE) if text is None else text).splitlines()
    cells = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in lines if line.startswith("| ")]
    return [Row(_words(seen), meaning, remedy) for seen, meaning, remedy in cells if seen != "you see"]


def _words(cell: str) -> str:
    """Markdown has a blank next to nested backticks."""
    found = _CODE.match(cell)
    assert found, f"a failure begins with its words in backticks: {cell}"
    return found[2].strip()


@dataclass
class Failure:
    row: Row
    seen: bool = False
    done: list[str] = field(default_factory=list)

    def assert_seen(self, text: str) -> None:
        """`...` matches any text within a line."""
        pattern = ".*".join(re.escape(part) for part in self.row.words.split("..."))
        assert re.search(pattern, text), f"`{self.row.words}` does not stand in: {text}"
        self.seen = True

    def follow(self, *steps: str) -> None:
        assert self.seen, "the words come before the remedy"
        for step in steps:
            assert step in self.row.remedy, f"the remedy does not say `{step}`: {self.row.remedy}"
        self.done.extend(steps)


def documented_failure(words: str) -> Failure:
    [row] = [each for each in failure_rows() if each.words == words]
    return Failure(row)


class CausingTest(NamedTuple):
    place: str
    words: str
    lacks: str


def causing_tests(paths: list[Path] | None = None) -> list[CausingTest]:
    found = sorted((ROOT / "tests").rglob("test_*.py")) if paths is None else paths
    return [each for path in found for each in _of_module(path)]


def _of_module(path: Path) -> Iterator[CausingTest]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, _FUNCTIONS):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == f"pytest.mark.{MARKER}":
                    yield CausingTest(f"{path.name}::{node.name}", _constant(decorator.args[0]), _lacking(node))


def _constant(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant), ast.unparse(node)
    return str(node.value)


def _lacking(test: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    lines = dict.fromkeys(("assert_seen", "follow"), 0)
    expects = 0
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in lines:
            lines[node.func.attr] = max(node.lineno, lines[node.func.attr])
        if isinstance(node, ast.Assert):
            expects = max(node.lineno, expects)
    if not lines["assert_seen"]:
        return "the words"
    if not lines["follow"]:
        return "the remedy"
    return "" if expects > lines["follow"] else "that the remedy helped"
