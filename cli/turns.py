"""`ask`, `show`, `turns` and `watch`."""

from typing import Annotated

import typer

from signoff.cli.cards import card_lines
from signoff.cli.desks import Desk, Here, desk_of
from signoff.cli.inputs import session_id, spoken
from signoff.cli.options import Address, AsJson, Asker, Manifest, Url
from signoff.cli.output import Output, run
from signoff.cli.parts import working_store
from signoff.cli.remote import at_gateway, gateway_url
from signoff.cli.words import turn_lines, turn_table, utc_now
from signoff.cli.workplace import Workplace, find_workplace
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError, NotFound, ServerUnavailable
from signoff.contracts.limits import INLINE_BYTES
from signoff.contracts.message import Message, TextPart, user_message
from signoff.contracts.names import ENGINE
from signoff.contracts.turn import TurnInput, TurnView
from signoff.gateway.identity import DEFAULT_ASKER
from signoff.gateway.uuid7 import uuid7
from signoff.registry.nearest import did_you_mean, shown
from signoff.registry.people import principal_of, turn_context
from signoff.store.content import json_bytes, to_content
from signoff.store.freezes import Freezes
from signoff.store.store import open_store

_FAILED = ("error", "cancelled")

app = typer.Typer(rich_markup_mode=None)


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="What is wanted, in plain words.")],
    actor: Annotated[str, typer.Option(help="Who is asked; the manifest's first actor if not given.")] = "",
    person: Asker = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Watch the turn until it ends.")] = True,
    session: Annotated[str, typer.Option(help="The conversation it belongs to; a new one if not given.")] = "",
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
            body = {"text": text, "actor": actor, "session": talk, "dry_run": dry_run}
            async with at_gateway(there, person) as gateway:
                started = await gateway.start({name: value for name, value in body.items() if value})
                return await _begun(out, gateway, started.id, f"turn {started.turn}", wait=wait, found=started)
        place = find_workplace(manifest)
        asker = place.speaker(person or DEFAULT_ASKER)
        async with working_store(place.settings) as store:
            await Freezes(store).refuse_new(place.tenant)
        principal = principal_of(asker)
        turn_id = uuid7(utc_now())
        turn = TurnInput(
            engine=ENGINE,
            tenant_id=place.tenant,
            session_id=talk or turn_id,
            turn_id=turn_id,
            actor=_actor(place, actor),
            messages=(await _message(place, text),),
            principal=principal,
            person_id=principal.user,
            channel="cli",
            context=turn_context(asker, {}),
            dry_run=dry_run,
        )
        signoff = await place.reach(address)
        key = await signoff.start_turn(turn)
        found = {**key._asdict(), "workflow_id": key.workflow_id}
        words = f"turn {key.turn} ({turn.actor}, as {principal.user})"
        return await _begun(out, Here(place, signoff), ".".join(key), words, wait=wait, found=found)

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
            out.show(found, card_lines(found, utc_now()))
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
        out.show(rows, turn_table(rows, utc_now()) if rows else empty)
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


async def _begun(out: Output, desk: Desk, turn: str, words: str, *, wait: bool, found: object) -> int:
    """Say that a turn is started, and follow it if wanted."""
    short = turn.rpartition(".")[2]
    if not wait:
        out.show(found, f"turn {short} is accepted: signoff watch {short}")
        return 0
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


def _actor(place: Workplace, name: str) -> str:
    """Raises `NotFound` that offers the nearest actors, `ConfigError` when there is none at all."""
    actors = list(place.catalog.actors)
    if not actors:
        raise ConfigError(f"`{place.settings.manifest}` declares no actor: add one under `actors`")
    if name and name not in actors:
        near = did_you_mean(name, actors) or f"; known: {', '.join(f'`{each}`' for each in actors)}"
        raise NotFound(f"there is no actor {shown(name)}{near}")
    return name or actors[0]


async def _message(place: Workplace, text: str) -> Message:
    if len(json_bytes(text)) <= INLINE_BYTES:
        return user_message(text)
    async with open_store(place.settings.store_url, durable=place.settings.durable) as store:
        content: Content = await to_content(store, text)
    return Message(role="user", parts=(TextPart(text=content),))
