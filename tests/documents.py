import ast
import functools
import gc
import re
from pathlib import Path
from typing import NamedTuple, TypeGuard

import signoff

ROOT = Path(__file__).parents[1]
PACKAGE = Path(signoff.__path__[0])
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK_OR_HEADING = re.compile(r"^```.*?^```$|^#+ (?P<heading>[^\n]+)$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_NAME = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"(?:#|//) (\S+\.\w+)\n")


class Block(NamedTuple):
    page: str
    language: str
    text: str
    file: str


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(path: Path, language: str = "") -> list[Block]:
    found = [
        Block(path.name, kind, text, named[1] if (named := _FILE.match(text)) else "")
        for kind, text in _BLOCK.findall(path.read_text(encoding="utf-8"))
    ]
    return [block for block in found if language in ("", block.language)]


def blocks_below(path: Path, heading: str) -> list[str]:
    below, found = "", []
    for each in _BLOCK_OR_HEADING.finditer(path.read_text(encoding="utf-8")):
        below = each["heading"] or below
        if each["heading"] is None and below == heading:
            found.append("".join(each[0].splitlines(keepends=True)[1:-1]))
    return found


def headings(path: Path, above: str) -> list[str]:
    text = _BLOCK.sub("", path.read_text(encoding="utf-8"))
    section = text.partition(f"\n## {above}\n")[2].partition("\n## ")[0]
    return re.findall(r"^### (.+)$", section, re.MULTILINE)


def shell_lines(path: Path) -> list[str]:
    joined = (block.text.replace("\\\n", " ") for block in blocks(path, "sh"))
    return [line for text in joined for line in text.splitlines() if line.strip()]


def links(path: Path) -> list[str]:
    return _LINK.findall(_BLOCK.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def tables(name: str, heading: str) -> list[list[str]]:
    text = page(name)
    found = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert found, f"{name} has no heading `{heading}`"
    section = re.split(r"^## ", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in _BLOCK.sub("", section).splitlines() if line.startswith("|")]
    ruled = {at for at, line in enumerate(lines) if set(line) <= set("|- :")}
    kept = [line for at, line in enumerate(lines) if at not in ruled and at + 1 not in ruled]
    return [[cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] for line in kept]


def names(cell: str) -> list[str]:
    return _NAME.findall(cell)


def named(name: str, heading: str) -> list[str]:
    return [each for row in tables(name, heading) for each in names(row[0])]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Parsed once, without garbage collection, which takes four times as long as the parser."""
    looked = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if looked:
            gc.enable()


@functools.cache
def _test_modules() -> list[tuple[Path, ast.Module]]:
    return [(path, parsed(path)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]


@functools.cache
def row_markers() -> dict[str, set[str]]:
    """Row -> tests as `path::name`, by a marker or by a case of a parameter list."""
    found: dict[str, set[str]] = {}
    for path, tree in _test_modules():
        cases = _rows_of_lists(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for row in (row for decorator in node.decorator_list for row in _rows(decorator, cases)):
                found.setdefault(row, set()).add(f"{path.relative_to(ROOT).as_posix()}::{node.name}")
    return found


def marked_rows() -> dict[str, list[str]]:
    """`path::name` -> the rows that every case of the test proves."""
    found: dict[str, list[str]] = {}
    for path, tree in _test_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                rows = [row for decorator in node.decorator_list for row in _rows(decorator, {})]
                found[f"{path.relative_to(ROOT).as_posix()}::{node.name}"] = rows
    return found


def _rows_of_lists(tree: ast.Module) -> dict[str, list[str]]:
    return {
        ast.unparse(node.targets[0]): [_text(each.args[0]) for each in ast.walk(node.value) if _is_call(each, "case")]
        for node in tree.body
        if isinstance(node, ast.Assign)
    }


def _rows(decorator: ast.expr, cases: dict[str, list[str]]) -> list[str]:
    if _is_call(decorator, "pytest.mark.row"):
        return [_text(each) for each in decorator.args]
    if _is_call(decorator, "pytest.mark.parametrize"):
        return cases.get(ast.unparse(decorator.args[1]), [])
    return []


def _is_call(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == name


def _text(node: ast.expr) -> str:
    assert isinstance(node, ast.Constant)
    return str(node.value)
