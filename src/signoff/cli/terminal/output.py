"""What commands print: text for people, or JSON for programs and then nothing else on standard output."""

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
"""Columns of tables that no terminal shows."""


class Output:
    """Where one command prints. Texts are printed as they are: no markup is read out of them."""

    def __init__(self, stdout: TextIO, *, as_json: bool) -> None:
        self.as_json = as_json
        self._stdout = stdout
        width = None if stdout.isatty() else PIPE_WIDTH
        self._console = Console(file=stdout, markup=False, highlight=False, emoji=False, width=width)

    def show(self, data: Any, *words: RenderableType, compact: bool = False) -> None:
        """Prints `data` as JSON, on one line if `compact`, where JSON is wanted; else `words`, one below the other."""
        if self.as_json:
            self.write(to_json(data, indent=None if compact else 2).decode() + "\n")
        else:
            self.say(*words)

    def write(self, text: str) -> None:
        """Prints `text` byte for byte, for programs."""
        self._stdout.write(text)
        self._stdout.flush()

    def say(self, *words: RenderableType) -> None:
        """Prints words for people; nothing where JSON is wanted."""
        if not self.as_json:
            for each in words:
                # Only tables and the like are laid out: a terminal breaks long lines better than spaces do.
                self._console.print(each, soft_wrap=isinstance(each, str | Text))


def run(body: Callable[[Output], Coroutine[Any, Any, int]], *, as_json: bool = False) -> None:
    """Runs the body of a command in an event loop of its own; it returns the exit code: 0 done, 1 failed or refused."""
    with _stdout(as_json) as stdout:
        code = asyncio.run(body(Output(stdout, as_json=as_json)))
    if code:
        raise typer.Exit(code)


@contextmanager
def _stdout(alone: bool) -> Iterator[TextIO]:
    """Yields standard output; if `alone`, whatever else is printed meanwhile goes to standard error, from C as well."""
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
    # What is buffered belongs to the descriptor as it is now.
    stdout.flush()
    kept = os.dup(number)
    os.dup2(sys.stderr.fileno(), number)
    try:
        # A copy of the copy: closing the file closes it, and `kept` is still needed to put everything back.
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as alone:
            yield alone
    finally:
        os.dup2(kept, number)
        os.close(kept)
