"""Reducers shorten one tool's results for the model, after the run and before any cut."""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.contracts.ids import is_tool_name
from signoff.contracts.limits import KIB
from signoff.registry.hooks import Hook
from signoff.registry.import_reference import load_reference
from signoff.registry.tool_result import ReducerInput, Result, ToolFailure, ToolResult

_LONG_BYTES: Final = 8 * KIB
_HEAD_LINES: Final = 40
_TAIL_LINES: Final = 20
_FILES_SHOWN: Final = 5
_FILE_LINES: Final = 200
_ITEMS_WHOLE: Final = 10
_ITEMS_SHOWN: Final = 5

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
    """Shorten the output of the command in `args.command` (or `args.cmd`). Errors stay unchanged.

    `git status`: counts and the first five files. Test runs: failures and the summary. Installs: added and removed
    packages, warnings and errors. Other output over 8 KiB, also if none of that is recognised: the first 40 and the
    last 20 lines.
    """
    if isinstance(result, ToolFailure):
        return result
    text, command = str(result.value), _command(given.args)
    for means, shorten in _COMMANDS:
        if means(command) and (short := shorten(text)):
            # A short output is not worth shortening.
            return replace(result, value=short) if len(short) < len(text) else result
    return replace(result, value=_ends(text))


def read_file(result: Result, given: ReducerInput) -> Result:
    """Shorten a whole file over 200 lines to a hint and the first 200. A requested range stays unchanged."""
    if isinstance(result, ToolFailure) or any(given.args.get(name) is not None for name in _RANGE):
        return result
    lines = str(result.value).split("\n")
    # A final line break begins no further line.
    total = len(lines) - (lines[-1] == "")
    if total <= _FILE_LINES:
        return result
    hint = f"[{total} lines in all, the first {_FILE_LINES} are shown; ask for others with lineStart and lineEnd]"
    return replace(result, value="\n".join((hint, *lines[:_FILE_LINES])))


def kanban_list(result: Result, given: ReducerInput) -> Result:
    """Shorten a JSON list of over 10 items to counts by status and the 5 newest unfinished ones."""
    if isinstance(result, ToolFailure):
        return result
    try:
        items = json.loads(str(result.value))
    except (ValueError, RecursionError):
        return result
    if not isinstance(items, list) or len(items) <= _ITEMS_WHOLE or not all(isinstance(item, dict) for item in items):
        return result
    counts = Counter(str(item.get("status") or "unknown") for item in items)
    summary = ", ".join(f"{status}={count}" for status, count in counts.items())
    # The sort is stable: of items without a date, the first ones win.
    unfinished = sorted((i for i in items if i.get("status") != "done"), key=_describe_update, reverse=True)
    lines = [f"- {item.get('id', '?')} [{item.get('status') or 'unknown'}] {item.get('title') or '(no title)'}"
             for item in unfinished[:_ITEMS_SHOWN]]  # fmt: skip
    return replace(result, value="\n".join((f"{len(items)} items: {summary}", "newest not done:", *lines)))


def _describe_update(item: Mapping[str, Any]) -> str:
    # ISO 8601 sorts as text. Compare other values as text too: mixed types would raise.
    return str(item.get("updatedAt") or item.get("updated_at") or "")


def _command(args: Mapping[str, Any]) -> str:
    given = args.get("command", args.get("cmd", ""))
    return " ".join(map(str, given)) if isinstance(given, list | tuple) else str(given)


def _asks_git_status(command: str) -> bool:
    words = iter(command.split())
    if next(words, "") != "git":
        return False
    for word in words:
        # The next word is its value: `git -C status log` is not a `status` command.
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
    shown = [f"- {kind}: {name}" for kind, name in files[:_FILES_SHOWN]]
    more = [f"... and {len(files) - _FILES_SHOWN} more"] if len(files) > _FILES_SHOWN else []
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
    left_out = len(lines) - _HEAD_LINES - _TAIL_LINES
    if len(text.encode("utf-8", "replace")) <= _LONG_BYTES or left_out <= 0:
        return text
    return "\n".join((*lines[:_HEAD_LINES], f"[... {left_out} lines left out ...]", *lines[-_TAIL_LINES:]))


logger = logging.getLogger("signoff.registry")

Reducer: TypeAlias = Callable[[Result, ReducerInput], Result]
"""Synchronous and deterministic. It calls no model, and reads and writes nothing.

It gets the result as the model would read it (`value` is text) and returns one of the same class. Only its text is
used: structured data and cost stay the tool's.
"""

REDUCER: Final = Hook[Result](field="reducer", takes=("result", "given"), style="plain")
BUILT_IN: Final[Mapping[str, Reducer]] = MappingProxyType(
    {"terminal": terminal, "read_file": read_file, "kanban_list": kanban_list}
)
"""The built-in reducers by name: `terminal`, `read_file`, `kanban_list`."""


@dataclass(frozen=True, eq=False)
class ToolReducer:
    """The reducer of one tool. Two are equal only if they are the same object."""

    tool: str
    reduce: Reducer


class ReducerRegistry:
    """Holds reducers by the exact name of their tool, filled before a catalog is built. The catalog keeps a copy."""

    def __init__(self, reducers: Iterable[ToolReducer] = ()) -> None:
        self._entries: dict[str, ToolReducer] = {}
        for each in reducers:
            self.register(each)

    def register(self, reducer: ToolReducer) -> Callable[[], None]:
        """Add a reducer and return a function that removes exactly this one, not a later one of the tool.

        Raises `RegistrationError` for a second reducer of the tool, and for an object that is not a function.
        """
        tool = reducer.tool
        if not is_tool_name(tool):
            raise _refuse(tool, f"`{tool}` is no tool's name")
        if tool in self._entries:
            raise _refuse(tool, f"Reducer already registered for tool '{tool}'")
        _check(tool, reducer.reduce)
        self._entries[tool] = reducer
        return partial(self._unregister, reducer)

    def _unregister(self, reducer: ToolReducer) -> None:
        if self._entries.get(reducer.tool) is reducer:
            del self._entries[reducer.tool]

    def get(self, tool: str) -> Reducer | None:
        """Return the reducer of the tool of exactly this name, or `None`."""
        entry = self._entries.get(tool)
        return None if entry is None else entry.reduce

    def snapshot(self) -> Mapping[str, Reducer]:
        """Return a read-only copy of the reducers, by the name of their tool."""
        return MappingProxyType({name: entry.reduce for name, entry in self._entries.items()})


def reduce_result(reducer: Reducer | None, result: Result, given: ReducerInput) -> Result:
    """Return `result` unchanged if the reducer fails. Never raises."""
    if reducer is None:
        return result
    try:
        answer: object = reducer(result, given)
    # The effect has happened: no error of a reducer, and no library that exits, may lose its result.
    except (Exception, SystemExit) as error:
        # Only the type: the message of an error may quote the result.
        logger.warning("the reducer of a result failed: %s", type(error).__name__)
        return result
    if isinstance(result, ToolResult) and isinstance(answer, ToolResult) and isinstance(answer.value, str):
        return replace(result, value=answer.value)
    if isinstance(result, ToolFailure) and isinstance(answer, ToolFailure) and isinstance(answer.message, str):
        return replace(result, message=answer.message)
    logger.warning("the reducer of a result returned a %s: the result stays as it is", type(answer).__name__)
    return result


def named_reducer(name: object) -> Reducer:
    """Return a built-in reducer, `module:function`, or a program's function. Raises `ConfigError`."""
    if isinstance(name, str) and name in BUILT_IN:
        return BUILT_IN[name]
    if isinstance(name, str) and ":" not in name:
        known = ", ".join(f"`{each}`" for each in BUILT_IN)
        raise ConfigError(f"`{name}` is neither {known} nor `module:function`", field="reducer", value=name)
    reducer: Any = load_reference(name)
    return reducer  # type: ignore[no-any-return]


def _check(tool: str, reducer: Any) -> None:
    objection = REDUCER.objection(reducer)
    if objection:
        raise _refuse(tool, f"tool `{tool}` {objection}")


def _refuse(tool: str, why: str) -> RegistrationError:
    return RegistrationError(why, tool_name=tool, field="reducer", value=tool)
