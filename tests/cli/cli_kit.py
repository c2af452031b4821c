"""The command line as a function, and shared helpers of its tests."""

import asyncio
import contextlib
import io
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pydantic_core import from_json

from signoff.cli.main import invoke


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its standard output as one JSON value."""
        return from_json(self.out)


Cli = Callable[..., Awaitable[Ran]]


def run_here(arguments: tuple[str, ...]) -> Ran:
    """Run one command in this thread and capture its streams."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


async def run_in_thread(*arguments: str) -> Ran:
    """Run one command in a thread with its own event loop."""
    return await asyncio.to_thread(run_here, arguments)


async def found(cli: Cli, name: str, *more: str) -> tuple[bool, str]:
    """Return the result and message of one check of `signoff doctor`."""
    (check,) = [each for each in (await cli("doctor", *more, "--json")).data if each["name"] == name]
    return check["ok"], check["message"]


async def waiting_request(served_cli: Cli, text: str) -> dict[str, Any]:
    """Start a turn whose call needs approval, and return its card when the inbox lists it."""
    asked = await served_cli("ask", text, "--no-wait", "--json")
    assert asked.code == 0, asked.err
    turn = asked.data["turn"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for card in (await served_cli("inbox", "--json")).data:
            if card["turn"] == turn:
                found: dict[str, Any] = card
                return found
    raise AssertionError(f"turn {turn} never reached the inbox")


def assert_one_sentence(ran: Ran, code: int = 1) -> str:
    """Check the exit code, an empty standard output and one line without a traceback on standard error. Return that
    line."""
    assert (ran.code, ran.out) == (code, ""), ran
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    assert "Traceback" not in ran.err
    assert not lines[0].endswith("."), lines[0]
    return lines[0].removeprefix("signoff: ")
