"""Compares the code of changed files with an older revision, to show that a commit changes prose alone.

    python -m tools.same_code REV [PATH ...]    exit status 1 if code differs
    --texts                                     allow other string constants as well: messages, labels
    --renamed OLD=NEW                           allow this name to change, everywhere; may be repeated

Comments and docstrings may always differ, and so may the names of tests and of local variables, if each name maps to
one other. The command lists the renames that it finds.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Difference:
    """Code that differs: the lines before and after, and the reason."""

    old_line: int
    new_line: int
    reason: str


@dataclass
class _Locals:
    """The local names of one outermost function, and how they map to each other."""

    old: frozenset[str]
    new: frozenset[str]
    forward: dict[str, str] = field(default_factory=dict)
    back: dict[str, str] = field(default_factory=dict)

    def pair(self, old: str, new: str) -> bool:
        if old not in self.old or new not in self.new:
            return old == new and old not in self.old and new not in self.new
        return self.forward.setdefault(old, new) == new and self.back.setdefault(new, old) == old


class CodeComparison:
    """Compares two syntax trees without docstrings. `renames` maps old names to new ones."""

    def __init__(self, renames: Mapping[str, str], *, texts: bool = False) -> None:
        self.differences: list[Difference] = []
        self.found: dict[str, str] = {}
        self._renames = renames
        self._texts = texts
        self._locals: _Locals | None = None
        self._lines = (0, 0)

    def compare(self, old: ast.AST, new: ast.AST) -> None:
        self._lines = (getattr(old, "lineno", self._lines[0]), getattr(new, "lineno", self._lines[1]))
        if type(old) is not type(new):
            self._differ(f"{type(old).__name__} became {type(new).__name__}")
        elif isinstance(old, _FUNCTIONS) and self._locals is None:
            self._locals = _Locals(_local_names(old), _local_names(new))
            self._fields(old, new)
            self.found |= {name: other for name, other in self._locals.forward.items() if name != other}
            self._locals = None
        elif isinstance(old, ast.JoinedStr) and isinstance(new, ast.JoinedStr) and self._texts:
            self._values(
                [each for each in old.values if isinstance(each, ast.FormattedValue)],
                [each for each in new.values if isinstance(each, ast.FormattedValue)],
            )
        else:
            self._fields(old, new)

    def _fields(self, old: ast.AST, new: ast.AST) -> None:
        for name in old._fields:
            before, after = getattr(old, name, None), getattr(new, name, None)
            if isinstance(before, list) and isinstance(after, list):
                self._values(_without_prose(before), _without_prose(after))
            elif isinstance(before, ast.AST) and isinstance(after, ast.AST):
                self.compare(before, after)
            elif not self._same(old, name, before, after):
                self._differ(f"{before!r:.60} became {after!r:.60}")

    def _values(self, old: Sequence[object], new: Sequence[object]) -> None:
        if len(old) != len(new):
            self._differ(f"{len(old)} parts became {len(new)}")
            return
        for before, after in zip(old, new, strict=True):
            if isinstance(before, ast.AST) and isinstance(after, ast.AST):
                self.compare(before, after)
            elif not self._renamed(before, after):
                self._differ(f"{before!r:.60} became {after!r:.60}")

    def _same(self, node: ast.AST, name: str, old: object, new: object) -> bool:
        if isinstance(node, ast.Constant) and name == "value":
            return self._renamed(old, new) or (self._texts and isinstance(old, str) and isinstance(new, str))
        if not isinstance(old, str) or not isinstance(new, str):
            return old == new and type(old) is type(new)
        local = isinstance(node, ast.Name | ast.ExceptHandler | ast.MatchAs | ast.MatchStar)
        if local and self._locals and (old in self._locals.old or new in self._locals.new):
            return self._locals.pair(old, new)
        if isinstance(node, _FUNCTIONS) and name == "name" and old.startswith("test_") and new.startswith("test_"):
            self.found |= {old: new} if old != new else {}
            return True
        return self._renamed(old, new)

    def _renamed(self, old: object, new: object) -> bool:
        return (old == new and type(old) is type(new)) or (isinstance(old, str) and self._renames.get(old) == new)

    def _differ(self, reason: str) -> None:
        self.differences.append(Difference(*self._lines, reason))


def _without_prose(nodes: list[object]) -> list[object]:
    kept = [node for node in nodes if not _is_docstring(node)]
    # A body of prose alone needs no statement in its place, and may have one.
    return [node for node in kept if not isinstance(node, ast.Pass)]


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _local_names(function: ast.AST) -> frozenset[str]:
    names, fixed = set(), set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.arg):
            fixed.add(node.arg)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            fixed.update(node.names)
    return frozenset(names - fixed)


def _changed(revision: str, paths: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    listed = _git("diff", "--name-status", "-M", revision, "--", *(paths or ["."]))
    for line in listed.splitlines():
        status, *names = line.split("\t")
        if names[-1].endswith(".py"):
            old = "" if status == "A" else _git("show", f"{revision}:{names[0]}")
            yield names[-1], old, "" if status == "D" else Path(names[-1]).read_text()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    options = parser.parse_args()
    renames = dict(each.split("=", 1) for each in options.renamed)
    failures = 0
    for path, old, new in _changed(options.revision, options.paths):
        comparison = CodeComparison(renames, texts=options.texts)
        comparison.compare(ast.parse(old), ast.parse(new))
        for before, after in comparison.found.items():
            print(f"{path}: {before} is now {after}")
        for difference in comparison.differences:
            print(f"{path}:{difference.new_line} (before: line {difference.old_line}): {difference.reason}")
        failures += len(comparison.differences)
    print(f"{failures} differences of code")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
