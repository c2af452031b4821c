"""Finds the line of a user's program that declares something."""

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from signoff.formats.yaml_file import YamlFile

_PACKAGE: Final = tuple(f"{folder}{os.sep}" for folder in sys.modules["signoff"].__path__)


@dataclass(frozen=True)
class CodeSite:
    """One line of a user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.shown}:{self.line}"

    @property
    def shown(self) -> str:
        """The file as messages show it: relative to the working directory if it is below it."""
        path = Path(self.file)
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else self.file

    @property
    def part(self) -> YamlFile:
        """The place as a file of one line, for errors."""
        return YamlFile(self.shown, None, {(): self.line})


def call_site() -> CodeSite:
    """Return the nearest line of the stack outside Signoff, `dataclasses`, `typing` and similar modules."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CodeSite(frame.f_code.co_filename, frame.f_lineno)


def function_site(function: Callable[..., Any]) -> CodeSite:
    """Return the line where a function begins, or the declaring line if it has no source."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return call_site() if code is None else CodeSite(code.co_filename, code.co_firstlineno)


def _is_ours(file: str) -> bool:
    return file.startswith(("<", *_PACKAGE))
