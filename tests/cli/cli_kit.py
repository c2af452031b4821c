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
        return from_json(self.out)


Cli = Callable[..., Awaitable[Ran]]


def run_here(arguments: tuple[str, ...]) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = invoke(arguments)
    return Ran(code, out.getvalue(), err.getvalue())


async def run_in_thread(*arguments: str) -> Ran:
    return await asyncio.to_thread(run_here, arguments)


async def found(cli: Cli, name: str, *more: str) -> tuple[bool, str]:
    (check,) = [each for each in (await cli("doctor", *more, "--json")).data if each["name"] == name]
    return check["ok"], check["message"]


async def waiting_request(served_cli: Cli, text: str) -> dict[str, Any]:
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
    """Standard output is empty. Standard error has one line, without a traceback."""
    assert (ran.code, ran.out) == (code, ""), ran
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    assert "Traceback" not in ran.err
    assert not lines[0].endswith("."), lines[0]
    return lines[0].removeprefix("signoff: ")
