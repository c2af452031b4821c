"""The built-in reducers: for terminals, files and boards (E40, E41, E42)."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from signoff.contracts.limits import KIB
from signoff.registry.results.tool_result import ReducerInput, Result, ToolFailure

LONG_BYTES: Final = 8 * KIB
HEAD_LINES: Final = 40
TAIL_LINES: Final = 20
FILES_SHOWN: Final = 5
FILE_LINES: Final = 200
ITEMS_WHOLE: Final = 10
ITEMS_SHOWN: Final = 5

_RANGE: Final = ("lineStart", "lineEnd", "line_start", "line_end")
_GIT_VALUED: Final = ("-C", "-c", "--git-dir", "--work-tree")
_LETTERS: Final = {
    "M": "modified", "A": "added", "D": "deleted", "R": "renamed", "C": "copied", "U": "unmerged", "T": "retyped",
}  # fmt: skip
_PORCELAIN: Final = re.compile(r"^([ MADRCUT?!]{2}) (\S.*)$")
_LONG_FORM: Final = re.compile(r"^\t(?:(new file|modified|deleted|renamed|copied|typechange|both \w+):\s+)?(\S.*)$")
_TEST_RUN: Final = re.compile(
    r"\b(?:pytest|vitest|jest|mocha|tox|go test|cargo test|"
    r"(?:npm|pnpm|yarn|bun)(?:\s+run)?\s+test|make\s+(?:test|check))\b"
)
_TEST_LINE: Final = re.compile(r"\bFAIL(?:ED|URE|URES)?\b|Error\b|\bERROR\b")
_TEST_SUMMARY: Final = re.compile(
    r"\b\d+ (?:passed|failed|passing|failing|skipped|errors?|tests?)\b"
    r"|^\s*(?:Tests?|Test Suites|Test Files|test result):?\s",
    re.IGNORECASE,
)
_INSTALL: Final = re.compile(
    r"\b(?:npm|pnpm|yarn|bun)\s+(?:install|i|add|ci|remove|uninstall|update|upgrade)\b|\byarn\s*$|"
    r"\b(?:pip3?|uv|poetry|cargo|apt|apt-get|brew|gem|go)\s+(?:pip\s+)?(?:install|add|remove|uninstall|sync|get|upgrade)\b"
)
_INSTALL_LINE: Final = re.compile(
    r"\badded\b|\bremoved\b|\bwarn(?:ing)?\b|\berr(?:or)?\b|successfully (?:un)?installed", re.IGNORECASE
)


def terminal(result: Result, given: ReducerInput) -> Result:
    """Shortens the output of the command in `args.command` (or `args.cmd`); errors stay as they are (E40).

    `git status`: counts and the first five files. Test runs: lines of failures and the summary. Installs: lines of
    what was added, removed, warned of or wrong. Anything else over 8 KiB: the first 40 and the last 20 lines.
    A command of which none of that is recognised in its output is treated as anything else.
    """
    if isinstance(result, ToolFailure):
        return result
    text, command = str(result.value), _command(given.args)
    for means, shorten in _COMMANDS:
        if means(command) and (short := shorten(text)):
            # Of a short output there is nothing to gain.
            return replace(result, value=short) if len(short) < len(text) else result
    return replace(result, value=_ends(text))


def read_file(result: Result, given: ReducerInput) -> Result:
    """Shortens a whole file over 200 lines to a hint and the first 200; a range that was asked for stays (E41)."""
    if isinstance(result, ToolFailure) or any(given.args.get(name) is not None for name in _RANGE):
        return result
    lines = str(result.value).split("\n")
    # A line end at the end of the file begins no further line.
    total = len(lines) - (lines[-1] == "")
    if total <= FILE_LINES:
        return result
    hint = f"[{total} lines in all, the first {FILE_LINES} are shown; ask for others with lineStart and lineEnd]"
    return replace(result, value="\n".join((hint, *lines[:FILE_LINES])))


def kanban_list(result: Result, given: ReducerInput) -> Result:
    """Shortens a JSON list of over 10 items to counts by status and the 5 newest that are not done (E42)."""
    if isinstance(result, ToolFailure):
        return result
    try:
        items = json.loads(str(result.value))
    except (ValueError, RecursionError):
        return result
    if not isinstance(items, list) or len(items) <= ITEMS_WHOLE or not all(isinstance(item, dict) for item in items):
        return result
    counts = Counter(str(item.get("status") or "unknown") for item in items)
    summary = ", ".join(f"{status}={count}" for status, count in counts.items())
    # Sorting is stable: of items without a date the first ones win.
    unfinished = sorted((i for i in items if i.get("status") != "done"), key=_describe_update, reverse=True)
    lines = [f"- {item.get('id', '?')} [{item.get('status') or 'unknown'}] {item.get('title') or '(no title)'}"
             for item in unfinished[:ITEMS_SHOWN]]  # fmt: skip
    return replace(result, value="\n".join((f"{len(items)} items: {summary}", "newest not done:", *lines)))


def _describe_update(item: Mapping[str, Any]) -> str:
    # ISO 8601 sorts as text; anything else is compared as text too, where mixed types would raise.
    return str(item.get("updatedAt") or item.get("updated_at") or "")


def _command(args: Mapping[str, Any]) -> str:
    given = args.get("command", args.get("cmd", ""))
    return " ".join(map(str, given)) if isinstance(given, list | tuple) else str(given)


def _asks_git_status(command: str) -> bool:
    words = iter(command.split())
    if next(words, "") != "git":
        return False
    for word in words:
        # The next word is its value: `git -C status log` asks for no status.
        if word in _GIT_VALUED:
            next(words, "")
        elif not word.startswith("-"):
            return word == "status"
    return False


def _git_status(text: str) -> str:
    files: list[tuple[str, str]] = []
    section = ""
    for line in text.splitlines():
        if found := _PORCELAIN.match(line):
            files.append((_kind(found[1]), found[2]))
        elif found := _LONG_FORM.match(line):
            files.append((found[1] or section, found[2]))
        elif line.rstrip().endswith(":"):
            section = "untracked" if line.startswith("Untracked") else "changed"
    if not files:
        return ""
    counts = Counter(kind for kind, _ in files)
    summary = ", ".join(f"{kind}={count}" for kind, count in counts.items())
    shown = [f"- {kind}: {name}" for kind, name in files[:FILES_SHOWN]]
    more = [f"... and {len(files) - FILES_SHOWN} more"] if len(files) > FILES_SHOWN else []
    return "\n".join((f"{len(files)} changed: {summary}", *shown, *more))


def _kind(letters: str) -> str:
    if letters == "??":
        return "untracked"
    if letters == "!!":
        return "ignored"
    return _LETTERS.get(letters.strip()[:1], "changed")


def _make_matcher(*patterns: re.Pattern[str]) -> Callable[[str], str]:
    def shorten(text: str) -> str:
        return "\n".join(line for line in text.splitlines() if any(each.search(line) for each in patterns))

    return shorten


_COMMANDS: Final[tuple[tuple[Callable[[str], object], Callable[[str], str]], ...]] = (
    (_asks_git_status, _git_status),
    (_TEST_RUN.search, _make_matcher(_TEST_LINE, _TEST_SUMMARY)),
    (_INSTALL.search, _make_matcher(_INSTALL_LINE)),
)


def _ends(text: str) -> str:
    lines = text.splitlines()
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    if len(text.encode("utf-8", "replace")) <= LONG_BYTES or left_out <= 0:
        return text
    return "\n".join((*lines[:HEAD_LINES], f"[... {left_out} lines left out ...]", *lines[-TAIL_LINES:]))
