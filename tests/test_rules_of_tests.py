import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from documents import PACKAGE, parsed

HERE = Path(__file__).parent
LONGEST_SLEEP = 0.1
"""A pause between two checks. A longer one would slow down every run."""
EXPECTS = frozenset({"raises", "fail", "expect"})
"""Calls that count as assertions: pytest's, and `expect` of Playwright."""
LET_PASS = 2
"""Uses of `real_time.let_pass`, each with its reason."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def modules(pattern: str = "*.py") -> list[Path]:
    found = sorted(HERE.rglob(pattern))
    assert len(found) > 100
    return found


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test_"):
            yield node


def called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "attr", "") or getattr(node.func, "id", "")


def numbers(node: ast.AST) -> list[float]:
    found = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
    return [each for each in found if isinstance(each, int | float)]


def long_sleeps(path: Path) -> list[str]:
    if "sleep" not in path.read_text(encoding="utf-8"):
        return []
    return [
        f"{path.name}:{node.lineno} {function.name}"
        for function in functions(path)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and called(node) == "sleep" and node.args
        # A quotient is meant to be short.
        if not isinstance(node.args[0], ast.BinOp) and max(numbers(node.args[0]), default=0) > LONGEST_SLEEP
    ]


def test_no_test_sleeps_for_long() -> None:
    assert [each for path in modules() for each in long_sleeps(path)] == []


def test_let_pass_is_used_only_as_often_as_listed() -> None:
    naming = [path for path in modules() if "let_pass" in path.read_text(encoding="utf-8")]
    names = [node for path in naming for node in ast.walk(parsed(path)) if getattr(node, "id", "") == "let_pass"]
    assert len(names) == LET_PASS


@pytest.mark.parametrize(
    ("body", "long"),
    [
        ("await asyncio.sleep(0.2)", True),
        ("async def hangs(): await asyncio.sleep(60)", True),
        ("time.sleep(1.5 if slow else 0)", True),
        ("await asyncio.sleep(0.05)", False),
        ("await asyncio.sleep(turn / 4000)", False),
    ],
)
def test_long_sleep_is_noticed(tmp_path: Path, body: str, long: bool) -> None:
    path = tmp_path / "test_slow.py"
    path.write_text(f"async def test_slow():\n    {body}\n")
    assert long_sleeps(path) == (["test_slow.py:2 test_slow"] if long else [])


def says_nothing(path: Path) -> list[str]:
    return [
        f"{path.name}:{function.lineno} {function.name}"
        for function in functions(path)
        if not any(isinstance(node, ast.Assert) or called(node) in EXPECTS for node in ast.walk(function))
    ]


def test_every_test_has_an_assertion() -> None:
    assert [each for path in modules("test_*.py") for each in says_nothing(path)] == []


def test_missing_assertion_in_a_test_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "test_quiet.py"
    path.write_text("def test_quiet():\n    check()\n\n\ndef test_loud():\n    assert check()\n")
    assert says_nothing(path) == ["test_quiet.py:1 test_quiet"]


OF_ONE_FOLDER = (
    *("approvals", "audit", "client", "contracts", "engine", "evaluation", "formats"),
    *("keys", "languages", "people", "policy", "registry", "store", "telemetry", "texts"),
)
"""Directories of the package with tests in a directory of the same name that import it."""
OF_WHOLE_TURNS = ("activities", "channels", "cli", "gateway", "plugins", "workflows")
"""The same, but a test may use a command, a request or a turn instead of an import."""
OF_BEHAVIOURS = ("attacks", "bench", "browser", "clients", "designs", "examples", "histories", "security")
"""Directories of tests about several parts together."""


def test_every_test_directory_matches_a_package_directory_or_is_listed() -> None:
    there = {path.parent.relative_to(HERE).parts[0] for path in modules("test_*.py") if path.parent != HERE}
    assert there <= {*OF_ONE_FOLDER, *OF_WHOLE_TURNS, *OF_BEHAVIOURS}
    assert [name for name in (*OF_ONE_FOLDER, *OF_WHOLE_TURNS) if not (PACKAGE / name).is_dir()] == []


def imported(path: Path) -> set[str]:
    names = [node.module or "" for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)]
    kits = [path.parent / f"{name}.py" for name in names]
    found = {name.split(".")[1] for name in names if name.startswith("signoff.")}
    return found.union(*(imported(kit) for kit in kits if kit.is_file()))


@pytest.mark.parametrize("folder", OF_ONE_FOLDER)
def test_every_test_module_imports_the_package_of_its_directory(folder: str) -> None:
    tests = sorted((HERE / folder).rglob("test_*.py"))
    assert tests
    assert [path.name for path in tests if folder not in imported(path)] == []
