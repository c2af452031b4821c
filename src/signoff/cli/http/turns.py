"""`ask`, `show`, `turns`, `watch` and `cancel`."""

import contextlib
from typing import Annotated

import typer

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.card_lines import card_lines
from signoff.cli.terminal.effect_lines import effect_lines
from signoff.cli.terminal.inputs import session_id, spoken
from signoff.cli.terminal.options import AsJson, Asker, Stopper, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, turn_lines, turn_table
from signoff.cli.terminal.turn_exit import FAILED, exit_code
from signoff.client.client import Client
from signoff.client.turn_handle import TurnHandle
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import NotFound, Refused, ServerUnavailable
from signoff.contracts.ids import parse_approval_id, read_code
from signoff.contracts.responses import EffectPreview
from signoff.contracts.turn import TurnView
from signoff.formats.nearest_name import quote_name

app = typer.Typer(rich_markup_mode=None)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="The request, in plain words.")],
    actor: Annotated[str, typer.Option(help="The actor; optional if there is only one.")] = "",
    person: Asker = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch the turn until it ends.")] = True,
    session: Annotated[str, typer.Option(help="The conversation it belongs to; a new one if not given.")] = "",
    route: Annotated[str, typer.Option(help="On which route of the actor it begins.")] = "",
    step: Annotated[str, typer.Option(help="At which step of the route.")] = "",
    tool: Annotated[list[str] | None, typer.Option(help="A tool that this turn has before all others.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Judge calls without asking or running anything.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Record which tool each name means, and why.")] = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask an actor for something. The turn is safe once its id is printed, even if this command is stopped."""
    spoken(text)
    talk = session_id(session)

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            turn = await client.start(
                text,
                actor=actor,
                user=person,
                session=talk,
                route=route,
                step=step,
                transient=tool or (),
                dry_run=dry_run,
                trace=trace,
            )
            found = {"id": turn.id, **turn.key._asdict(), "workflow_id": turn.key.workflow_id, "links": turn.links}
            return await _report_start(out, turn, wait=wait, found=found)

    run(body, as_json=as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="A short code, an approval id or a turn.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the card of a request, or a turn."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            found = await _find(client, name)
            effect = await _effect(client, found)
        if isinstance(found, TurnView):
            out.show(found, *turn_lines(found))
        else:
            out.show(found, card_lines(found, system_clock()), *([effect_lines(effect)] if effect else ()))
        return 0

    run(body, as_json=as_json)


@app.command()
def turns(
    state: Annotated[str, typer.Option(help="Only turns in this state, such as suspended or complete.")] = "",
    actor: Annotated[str, typer.Option(help="Only turns of this actor.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List turns, newest first."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            rows = await client.turns(state=state, actor=actor, limit=limit)
        empty = 'there is no such turn yet; `signoff ask "..."` starts one'
        out.show(rows, turn_table(rows, system_clock()) if rows else empty)
        return 0

    run(body, as_json=as_json)


@app.command()
def watch(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="A turn's id.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch a turn until it ends; with --json one line per change."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            return await _follow(out, await client.turn(turn), every=True)

    run(body, as_json=as_json)


@app.command()
def cancel(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="A turn's id.")],
    person: Stopper = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask a turn to stop: running tools finish, waiting requests are withdrawn. Open to the requester and the role
    `admin`.
    """

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            handle = await client.turn(turn)
            state = await handle.cancel(by=person)
        message = "is asked to stop" if state == "cancelling" else f"is over already: {clean(state)}"
        out.show({"id": handle.id, "state": state}, f"turn {handle.key.turn} {message}")
        return 0

    run(body, as_json=as_json)


async def _find(client: Client, name: str) -> ApprovalRequest | TurnView:
    """Raises `NotFound`."""
    approval = parse_approval_id(name.strip()) is not None
    if approval or read_code(name) is not None:
        try:
            return await client.request(name)
        except NotFound:
            # A text that looks like a code may be the beginning of a turn's id.
            if approval:
                raise
    try:
        return await client.view(name)
    except NotFound as error:
        near = error.message.partition(";")[1:]
        raise NotFound(f"there is no request and no turn {quote_name(name)}{''.join(near)}") from None


async def _report_start(out: Output, turn: TurnHandle, *, wait: bool, found: object) -> int:
    short = turn.key.turn
    if not wait:
        out.show(found, f"turn {short} is accepted: signoff watch {short}")
        return 0
    # Print the id first: it finds the turn even if this command or the gateway stops later.
    out.say(f"turn {short}")
    try:
        return await _follow(out, turn, every=False)
    except ServerUnavailable as error:
        raise ServerUnavailable(f"turn `{short}` is accepted and safe, but {error.message}") from None


async def _follow(out: Output, turn: TurnHandle, *, every: bool) -> int:
    """As JSON, print `every` view, or only the last one."""
    printed: set[str] = set()
    view: TurnView | None = None
    async for seen in turn.watch():
        view = seen
        if every and out.as_json:
            out.show(view, compact=True)
        for line in turn_lines(view):
            if line.plain not in printed:
                printed.add(line.plain)
                out.say(line)
    if not every and out.as_json:
        out.show(view)
    return FAILED if view is None else exit_code([view])


async def _effect(client: Client, found: ApprovalRequest | TurnView) -> EffectPreview | None:
    """Return the preview of a request, for people who may decide it."""
    if isinstance(found, TurnView) or found.preview is None:
        return None
    with contextlib.suppress(Refused):
        return await client.effect(found)
    return None
