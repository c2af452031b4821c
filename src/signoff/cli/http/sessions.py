"""`chat` and `sessions`: conversations in a terminal."""

import asyncio
import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.inputs import session_id, spoken
from signoff.cli.terminal.options import AsJson, Asker, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import answer_lines, clean, content_text, place_lines, session_table
from signoff.cli.terminal.turn_exit import FAILED, NOT_DONE, exit_code
from signoff.client.client import Client
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import NotFound
from signoff.contracts.ids import uuid7
from signoff.contracts.message import APPROVAL_REQUEST, TextPart
from signoff.contracts.session_messages import SessionTurnView, SessionView
from signoff.contracts.turn import FAILED_STATES, TurnView

_PAUSE_SECONDS: Final = 0.5
_OPEN: Final = ("working", "waiting")

app = typer.Typer(rich_markup_mode=None)


@app.command()
def chat(
    text: Annotated[str | None, typer.Argument(help="The message; else every line of standard input is one.")] = None,
    session: Annotated[str, typer.Option(help="The session to continue; a new one if not given.")] = "",
    actor: Annotated[str, typer.Option(help="The actor; if not given, the session's present one.")] = "",
    person: Asker = "",
    route: Annotated[str, typer.Option(help="On which route of the actor; later messages stay there.")] = "",
    step: Annotated[str, typer.Option(help="At which step of the route.")] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Talk to an actor: send a message, read the answers and waiting requests; with --json one line per message.

    A message is finished when all its calls are answered or wait for approval. You can send more in the meantime.
    """
    name = session_id(session) or uuid7(system_clock())
    given = None if text is None else [spoken(text)]
    place = {"route": route, "step": step}
    codes: set[int] = set()
    for words in _lines() if given is None else given:
        # Use one event loop per message: while a person types, Ctrl-C ends the command as usual.
        code = 0
        try:
            said: dict[str, Any] = {"session": name, "text": words, "actor": actor, "user": person, **place}
            run(partial(_say, url=url, **said), as_json=as_json)
        except typer.Exit as ended:
            code = ended.exit_code
            codes.add(code)
        if code in (0, NOT_DONE):
            # The session stays where the first message put it, or moves on from there.
            place = {}
    if not as_json:
        typer.echo(f"session {name}: signoff chat --session {name}")
    if codes:
        raise typer.Exit(NOT_DONE if codes == {NOT_DONE} else FAILED)


@app.command()
def sessions(
    session: Annotated[str | None, typer.Argument(metavar="[SESSION]", help="One of them, to read it.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the running sessions, newest first, or show the messages of one."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            if session is not None:
                return await _read(out, client, session)
            rows = await client.sessions(limit=limit)
        empty = 'there is no active session;  `signoff chat "..."` begins one'
        out.show(rows, session_table(rows, system_clock()) if rows else empty)
        return 0

    run(body, as_json=as_json)


async def _say(out: Output, *, url: str | None, session: str, text: str, **given: Any) -> int:
    # `_follow` finds the turns for this message by its id, also if others write in the same session.
    message = uuid7(system_clock())
    async with gateway_client(url) as client:
        receipt = await client.say(text, session=session, id=message, **given)
        if receipt.status == "pending":
            out.show({"session": session, "receipt": receipt, "turns": []}, receipt.message, compact=True)
            return 0
        state, mine, turns = await _follow(out, client, receipt.id, message)
    errors = [turn.error for turn in mine if turn.error is not None]
    out.show({"session": session, "receipt": receipt, "state": state, "turns": turns, "errors": errors}, compact=True)
    # If a turn could not begin, only the session knows its end.
    return FAILED if any(turn.state in FAILED_STATES for turn in mine) else exit_code(turns)


async def _follow(
    out: Output, client: Client, name: str, message: str
) -> tuple[str, list[SessionTurnView], list[TurnView]]:
    """Return once every turn ends or waits."""
    printed: set[tuple[str, str]] = set()
    while True:
        view = await client.session(name)
        mine = [turn for turn in view.turns if turn.message_id == message]
        found = [(turn, await _full(client, view, turn)) for turn in mine]
        for turn, full in found:
            for line in _answers(turn, full):
                if (turn.turn, line.plain) not in printed:
                    printed.add((turn.turn, line.plain))
                    out.say(line)
        if _is_settled(mine):
            return view.state, mine, [full for _, full in found if full is not None]
        await asyncio.sleep(_PAUSE_SECONDS)


def _is_settled(turns: list[SessionTurnView]) -> bool:
    """Another turn takes up a passed message."""
    if not turns or any(turn.state == "working" for turn in turns):
        return False
    return turns[-1].state != "passed" or turns[-1].error is not None


async def _read(out: Output, client: Client, name: str) -> int:
    view = await client.session(name)
    lines: list[Text] = []
    for turn in view.turns:
        full = await _full(client, view, turn) if turn.state in _OPEN else None
        asked = [part for message in turn.messages for part in message.parts if isinstance(part, TextPart)]
        lines += [Text(f"{clean(turn.requester)}: {content_text(part.text)}") for part in asked]
        lines += _answers(turn, full)
    queued = [part for each in view.queued for part in each.message.parts if isinstance(part, TextPart)]
    lines += [Text(f"not answered yet: {content_text(part.text)}") for part in queued]
    lines += place_lines(view.route, view.step)
    if view.state == "suspended":
        lines.append(Text("suspended: a call waits for people", style="yellow"))
    out.show(view, *lines)
    return 0


def _answers(turn: SessionTurnView, full: TurnView | None) -> list[Text]:
    lines = answer_lines(full) if full is not None else []
    if full is None:
        answers = (part for part in turn.parts if part.type != APPROVAL_REQUEST)
        lines += [Text(f"{turn.actor}: {content_text(part.content)}") for part in answers]
    if turn.error is not None and (full is None or full.result is None or full.result.error is None):
        lines.append(Text(f"error: {clean(turn.error.message)}", style="red"))
    return lines


async def _full(client: Client, view: SessionView, turn: SessionTurnView) -> TurnView | None:
    """Return `None` if the server has no such turn yet, or has forgotten it."""
    try:
        return await client.view(".".join((view.tenant, view.session, turn.turn)))
    except NotFound:
        return None


def _lines() -> Iterator[str]:
    while True:
        if sys.stdin.isatty():
            typer.echo("> ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield spoken(line.rstrip("\r\n"))
