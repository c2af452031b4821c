"""`ask`, `show`, `turns`, `watch` and `cancel`."""

from typing import Annotated

import typer

from signoff.cli.desks import Desk, desk_of
from signoff.cli.http.gateway_client import at_gateway, gateway_url
from signoff.cli.loading import loading
from signoff.cli.terminal.card_lines import card_lines
from signoff.cli.terminal.inputs import session_id, spoken
from signoff.cli.terminal.options import Address, AsJson, Asker, Manifest, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean, turn_lines, turn_table
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.turn import TurnView

_FAILED = ("error", "cancelled")

app = typer.Typer(rich_markup_mode=None)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="What is wanted, in plain words.")],
    actor: Annotated[str, typer.Option(help="Who is asked; the manifest's first actor if not given.")] = "",
    person: Asker = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch the turn until it ends.")] = True,
    session: Annotated[str, typer.Option(help="The conversation it belongs to; a new one if not given.")] = "",
    route: Annotated[str, typer.Option(help="On which route of the actor it begins.")] = "",
    step: Annotated[str, typer.Option(help="At which step of the route.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Judge calls, but ask nobody and run nothing.")] = False,
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask an actor for something. The turn is safe once its id is printed, whatever stops afterwards."""
    spoken(text)
    talk = session_id(session)

    async def body(out: Output) -> int:
        there = gateway_url(url, manifest, address)
        if there is not None:
            body = {"text": text, "actor": actor, "session": talk, "dry_run": dry_run, "route": route, "step": step}
            async with at_gateway(there, person) as gateway:
                started = await gateway.start({name: value for name, value in body.items() if value})
                return await _begun(out, gateway, started.id, f"turn {started.turn}", wait=wait, found=started)
        with loading():
            from signoff.cli.here import begun_here  # noqa: PLC0415
        here, key, turn = await begun_here(
            manifest, address, person, text=text, actor=actor, session=talk, dry_run=dry_run, where=(route, step)
        )
        found = {**key._asdict(), "workflow_id": key.workflow_id}
        words = f"turn {key.turn} ({turn.actor}, as {turn.principal.user})"
        return await _begun(out, here, ".".join(key), words, wait=wait, found=found)

    run(body, as_json=as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="A short code, an approval id or a turn.")],
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show the card of a request, or a turn."""

    async def body(out: Output) -> int:
        async with desk_of(url, manifest, address) as desk:
            found = await desk.found(name)
        if isinstance(found, TurnView):
            out.show(found, *turn_lines(found))
        else:
            out.show(found, card_lines(found, system_clock()))
        return 0

    run(body, as_json=as_json)


@app.command()
def turns(
    state: Annotated[str, typer.Option(help="Only turns in this state, such as suspended or complete.")] = "",
    actor: Annotated[str, typer.Option(help="Only turns of this actor.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 20,
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List turns, newest first."""

    async def body(out: Output) -> int:
        async with desk_of(url, manifest, address) as desk:
            rows = await desk.turns(state=state, actor=actor, limit=limit)
        empty = 'there is no such turn yet; `signoff ask "..."` starts one'
        out.show(rows, turn_table(rows, system_clock()) if rows else empty)
        return 0

    run(body, as_json=as_json)


@app.command()
def watch(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="A turn's id.")],
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch a turn until it ends; with --json one line each time it changed."""

    async def body(out: Output) -> int:
        async with desk_of(url, manifest, address) as desk:
            return await _follow(out, desk, await desk.turn(turn), every=True)

    run(body, as_json=as_json)


@app.command()
def cancel(
    turn: Annotated[str, typer.Argument(metavar="TURN", help="A turn's id.")],
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Ask a turn to stop: tools that run are awaited, what waits is withdrawn. For who asked, and the role `admin`."""

    async def body(out: Output) -> int:
        async with desk_of(url, manifest, address) as desk:
            key = await desk.turn(turn)
            state = await desk.cancel(key)
        told = "is asked to stop" if state == "cancelling" else f"is over already: {clean(state)}"
        out.show({"id": key, "state": state}, f"turn {key.rpartition('.')[2]} {told}")
        return 0

    run(body, as_json=as_json)


async def _begun(out: Output, desk: Desk, turn: str, words: str, *, wait: bool, found: object) -> int:
    """Say that a turn is started, and follow it if wanted."""
    short = turn.rpartition(".")[2]
    if not wait:
        out.show(found, f"turn {short} is accepted: signoff watch {short}")
        return 0
    # The id first: whatever stops from here on, the turn can be found by it.
    out.say(words)
    try:
        return await _follow(out, desk, turn, every=False)
    except ServerUnavailable as error:
        raise ServerUnavailable(f"turn `{short}` is accepted and safe, but {error.message}") from None


async def _follow(out: Output, desk: Desk, turn: str, *, every: bool) -> int:
    """Print what happens until the turn ends; as JSON `every` view, or the last one."""
    told: set[str] = set()
    view: TurnView | None = None
    async for seen in desk.follow(turn):
        view = seen
        if every and out.as_json:
            out.show(view, compact=True)
        for line in turn_lines(view):
            if line.plain not in told:
                told.add(line.plain)
                out.say(line)
    if not every and out.as_json:
        out.show(view)
    return int(view is None or view.state in _FAILED)
