"""Prints text for people, or JSON for programs. With JSON, standard output contains nothing else."""

import asyncio
import io
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

import typer
from pydantic_core import to_json
from rich.console import Console, RenderableType
from rich.text import Text

PIPE_WIDTH: Final = 160
"""The width of tables outside a terminal."""


class Output:
    """The output of one command. Prints texts verbatim, without markup."""

    def __init__(self, stdout: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self._stdout = stdout
        width = None if stdout.isatty() else PIPE_WIDTH
        self._console = Console(file=stdout, markup=False, highlight=False, emoji=False, width=width)

    def show(self, data: Any, *words: RenderableType, compact: bool = False) -> None:
        if self.as_json:
            self.write(to_json(data, indent=None if compact else 2).decode() + "\n")
        else:
            self.say(*words)

    def write(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()

    def say(self, *words: RenderableType) -> None:
        """Print nothing in JSON mode."""
        if not self.as_json:
            for each in words:
                # Only lay out tables and the like: a terminal wraps long lines better than inserted line ends do.
                self._console.print(each, soft_wrap=isinstance(each, str | Text))


def run(body: Callable[[Output], Coroutine[Any, Any, int]], *, as_json: bool = False) -> None:
    """The body returns the exit code."""
    with _stdout(as_json) as stdout:
        code = asyncio.run(body(Output(stdout, as_json=as_json)))
    if code:
        raise typer.Exit(code)


@contextmanager
def _stdout(alone: bool) -> Iterator[TextIO]:
    """If `alone`, redirect other output, including that of C code, to standard error."""
    mine = sys.stdout
    if not alone:
        yield mine
        return
    sys.stdout = sys.stderr
    try:
        with _descriptor(mine) as stdout:
            yield stdout
            stdout.flush()
    finally:
        sys.stdout = mine


@contextmanager
def _descriptor(stdout: TextIO) -> Iterator[TextIO]:
    try:
        number = stdout.fileno()
    except (io.UnsupportedOperation, OSError):
        yield stdout
        return
    # Flush the buffer first: it belongs to the present descriptor.
    stdout.flush()
    kept = os.dup(number)
    os.dup2(sys.stderr.fileno(), number)
    try:
        # Copy again: closing the file closes its descriptor, and `kept` is needed for the restoration.
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as alone:
            yield alone
    finally:
        os.dup2(kept, number)
        os.close(kept)
