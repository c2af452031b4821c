"""`channels list`, `channels check` and `channels test`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from signoff.approvals.argument_rows import plural
from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import AuditLog
from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.channel_loader import ChannelProblem, open_channels
from signoff.channels.envelopes import CheckFinding, OutboundCard
from signoff.cli.local.installation import LocalInstallation, account, find_installation
from signoff.cli.terminal.options import AppArgument, AppOption, AsJson, Tenant
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.approval import ApprovalRequest, Card
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import system_clock
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person, Principal
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.plugins.loader import Plugins
from signoff.store.delivery_queue import KEY, delivery_token
from signoff.store.store import Store, working_store

PATIENCE: Final = 30.0
"""Seconds that a vendor has for an answer."""
_TEST: Final = "Test of this channel: your answer has no effect"

app = typer.Typer(help="List, check and try the channels of the manifest.", no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Option("--channel", help="One channel only, by its name.", show_default=False)]


class ChannelRow(FrozenModel):
    """A channel. `problem` says why it could not be opened; `reaches` lists the active people with an address on it."""

    name: str
    kind: str
    identity: str = ""
    answers: bool = False
    assurance: str = ""
    default: int | None = None
    """Its position, from 1, among the default channels, which are used if a policy names none."""
    reaches: tuple[str, ...] = ()
    problem: str = ""


class ChannelCheck(FrozenModel):
    """The result of one check."""

    channel: str
    ok: bool
    what: str
    remedy: str = ""


class ChannelTrial(FrozenModel):
    """The result of one test card."""

    channel: str
    address: str
    sent: bool
    message: str


@app.command("list")
def list_channels(source: AppArgument = "", as_json: AsJson = False) -> None:
    """List the channels: kind, whether they accept answers, their order of use, and the people they reach."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        async with _open_channels(place) as (_, channels, problems):
            rows = await channel_rows(place, channels, problems)
        out.show(rows, _table(rows) if rows else "the manifest declares no channels; all requests are in the inbox")
        return 0

    run(body, as_json=as_json)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One channel only.", show_default=False)] = "",
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Ask each vendor whether credentials, addresses, registration, clocks and rooms are right. Exit code 1 if not."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        _check_name(place, name)
        async with _open_channels(place) as (_, channels, problems):
            found = [_misses(each) for each in problems if name in ("", each.channel)]
            wanted = [channel for channel in channels.values() if name in ("", channel.name)]
            answers = await asyncio.gather(*(_check_channel(place, channel) for channel in wanted))
        found += [each for answer in answers for each in answer]
        lines = [Text(_line(each), "" if each.ok else "red") for each in found]
        out.show(found, *(lines or [Text("the manifest declares no channels")]))
        return 0 if all(each.ok for each in found) else 1

    run(body, as_json=as_json)


@app.command("test")
def send_test(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id of the person who gets a test card.")],
    channel: Name = "",
    tenant: Tenant = DEFAULT_TENANT,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Send a person a test card on each of their channels. An answer to it only returns that nothing was decided."""

    async def body(out: Output) -> int:
        place = find_installation(source)
        _check_name(place, channel)
        who = place.person(person, tenant)
        async with _open_channels(place) as (store, channels, problems):
            named = [each for each in channels.values() if channel in ("", each.name)]
            wanted = [each for each in named if await _address(who, each)]
            missing = [each for each in problems if channel in ("", each.channel)]
            if not wanted and not missing:
                kinds = ", ".join(sorted({_place(each) for each in channels.values()}))
                why = f"give them one of {kinds}" if kinds else "the manifest declares none"
                raise NotFound(f"no channel reaches {quote_name(person)}: {why}")
            tried = [await _try_channel(place, store, each, who) for each in wanted]
            await AuditLog(store).append([_entry(who, [each.channel for each in tried if each.sent])])
        tried += [ChannelTrial(channel=each.channel, address="", sent=False, message=each.what) for each in missing]
        lines = [f"{'✓' if each.sent else '✗'} {each.channel}: {clean(each.message)}" for each in tried]
        out.show(tried, *(Text(words, "" if each.sent else "red") for words, each in zip(lines, tried, strict=True)))
        return 0 if all(each.sent for each in tried) else 1

    run(body, as_json=as_json)


async def channel_rows(
    place: LocalInstallation, channels: dict[str, Channel], problems: Sequence[ChannelProblem]
) -> list[ChannelRow]:
    """Return rows in the manifest's order."""
    order = place.catalog.channels.routing.default
    missing = {each.channel: each.what for each in problems}
    rows: list[ChannelRow] = []
    for name, declared in place.catalog.channels.declared.items():
        place_in_order = order.index(name) + 1 if name in order else None
        channel = channels.get(name)
        if channel is None:
            rows.append(ChannelRow(name=name, kind=declared.kind, default=place_in_order, problem=missing[name]))
            continue
        rows.append(
            ChannelRow(
                name=name,
                kind=declared.kind,
                identity=channel.identity,
                answers=channel.answers,
                assurance=channel.assurance,
                default=place_in_order,
                reaches=tuple(person.id for person in await _find_reached(place, channel)),
            )
        )
    return rows


@asynccontextmanager
async def _open_channels(
    place: LocalInstallation,
) -> AsyncIterator[tuple[Store, dict[str, Channel], list[ChannelProblem]]]:
    declared = place.catalog.channels.declared.values()
    async with working_store(place.settings) as store:
        channels, problems = await open_channels(
            declared,
            store,
            public_url=place.settings.public_url,
            clock=system_clock,
            secrets=place.secrets,
            plugins=Plugins(place.settings.plugins),
        )
        try:
            yield store, channels, problems
        finally:
            # An error while closing one channel must neither leave others open nor hide the command's result.
            await asyncio.gather(*(channel.close_down() for channel in channels.values()), return_exceptions=True)


async def _check_channel(place: LocalInstallation, channel: Channel) -> list[ChannelCheck]:
    every = (room for rooms in place.catalog.channels.rooms.values() for room in rooms)
    rooms = dict.fromkeys(room.room for room in every if room.channel == channel.name)
    answers = await asyncio.gather(
        _findings(channel.check()), *(_findings(_check_room(channel, room), f"room {room}: ") for room in rooms)
    )
    found = [finding for answer in answers for finding in answer]
    reached = len(await _find_reached(place, channel))
    entered = f"add {_place(channel)} to people" if channel.identity else "people switch it on in the inbox"
    remedy = "" if reached else entered
    found = [*found, CheckFinding(bool(reached), f"reaches {plural(reached, 'active person')}", remedy)]
    return [ChannelCheck(channel=channel.name, ok=each.ok, what=each.what, remedy=each.remedy) for each in found]


async def _findings(check: Awaitable[list[CheckFinding]], of: str = "") -> list[CheckFinding]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await check
    except TimeoutError:
        remedy = "try again, or look whether it can be reached from here"
        return [CheckFinding(False, f"{of}the vendor does not answer", remedy)]
    except Exception as error:
        # Adapters are third-party code, and their errors may contain a secret.
        what = f"{of}the check itself failed: {type(error).__name__}"
        return [CheckFinding(False, what, "tell the channel's author")]


async def _check_room(channel: Channel, room: str) -> list[CheckFinding]:
    if not channel.rooms:
        return [CheckFinding(False, f"room {room}: the channel has no rooms", "take it out of `rooms`")]
    found = await channel.check_room(room)
    return [] if found is None else [found]


async def _try_channel(place: LocalInstallation, store: Store, channel: Channel, person: Person) -> ChannelTrial:
    address, now = await _address(person, channel), system_clock()
    try:
        async with asyncio.timeout(PATIENCE):
            sent = await channel.deliver(await _outbound_card(place, store, channel, person, now), None)
    except NotDelivered as error:
        why = f"{error.message} ({error.code})"
        return ChannelTrial(channel=channel.name, address=address, sent=False, message=why)
    except TimeoutError:
        why = "the vendor did not answer in time"
        return ChannelTrial(channel=channel.name, address=address, sent=False, message=why)
    except Exception as error:
        # Only the name of the error, as in `_check_channel`.
        message = f"the channel failed: {type(error).__name__}"
        return ChannelTrial(channel=channel.name, address=address, sent=False, message=message)
    named = f", as {sent.vendor_id}" if sent.vendor_id else ""
    return ChannelTrial(channel=channel.name, address=address, sent=True, message=f"sent to {address}{named}")


async def _outbound_card(
    place: LocalInstallation, store: Store, channel: Channel, person: Person, now: datetime
) -> OutboundCard:
    """The card's turn does not exist, so that an answer finds no request."""
    approval = f"{person.tenant}.test.{now:%Y%m%d%H%M%S}.c1.1"
    request = ApprovalRequest(
        id=approval,
        code="T3S7CD",
        digest="test",
        tenant=person.tenant,
        turn=f"{now:%Y%m%d%H%M%S}",
        session="test",
        actor="signoff",
        call="c1.1",
        tool="channels test",
        args=Content(inline={}),
        card=Card(effect=_TEST),
        requester=Principal(user=person.id, name=person.name),
        opened_at=now,
        expires_at=now + timedelta(hours=1),
    )
    token = delivery_token(await store.secret_key(KEY), approval, 1, person.id, channel.name)
    address = await _address(person, channel)
    return OutboundCard(token=token, request=request, person=person, address=address, link=place.settings.public_url)


def _entry(person: Person, sent: list[str]) -> AuditEntry:
    facts: dict[str, Any] = {"person": person.id, "channels": sent, "account": account()}
    return admin_entry(person.tenant, "channels test", "", system_clock(), channel="cli", **facts)


async def _address(person: Person, channel: Channel) -> str:
    return (await channel.addresses([person])).get(person.id, "")


async def _find_reached(place: LocalInstallation, channel: Channel) -> list[Person]:
    reached: list[Person] = []
    for _, people in groupby(sorted(place.people.all(), key=_tenant_of), key=_tenant_of):
        active = [person for person in people if person.active]
        addresses = await channel.addresses(active)
        reached += [person for person in active if person.id in addresses]
    return reached


def _place(channel: Channel) -> str:
    # Without identities, people enter their address in the inbox.
    return f"`identities.{channel.identity}`" if channel.identity else f"`{channel.name}` (in the inbox)"


def _tenant_of(person: Person) -> str:
    return person.tenant


def _check_name(place: LocalInstallation, name: str) -> None:
    declared = place.catalog.channels.declared
    if name and name not in declared:
        near = did_you_mean(name, declared) or f"; known: {', '.join(f'`{each}`' for each in declared) or 'none'}"
        raise NotFound(f"there is no channel {quote_name(name)}{near}")


def _misses(problem: ChannelProblem) -> ChannelCheck:
    return ChannelCheck(channel=problem.channel, ok=False, what=problem.what, remedy="correct it in the manifest")


def _line(each: ChannelCheck) -> str:
    remedy = f"; {each.remedy}" if each.remedy and not each.ok else ""
    return f"{'✓' if each.ok else '✗'} {each.channel}: {clean(each.what)}{clean(remedy)}"


def _table(rows: Sequence[ChannelRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Name", "Kind", "Used", "Answers", "Reaches"):
        table.add_column(column, no_wrap=column == "Name", overflow="fold")
    for each in rows:
        used = "where a policy names it" if each.default is None else f"by default, {each.default}."
        answers = f"yes, as `{each.assurance}`" if each.answers else "no"
        reaches = clean(", ".join(each.reaches)) or "nobody"
        if each.problem:
            answers, reaches = "", f"not there: {clean(each.problem)}"
        table.add_row(each.name, clean(each.kind), used, answers, reaches)
    return table
