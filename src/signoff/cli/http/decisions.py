"""`decisions list`, `export` and `stats`: past requests."""

import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.table import Table

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.insight_tables import insight_lines
from signoff.cli.terminal.options import Answerer, AsJson, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.client.client import Client
from signoff.contracts.clock import system_clock
from signoff.contracts.ids import show_code
from signoff.contracts.responses import PastRequest, PastRequestList
from signoff.texts.past_lines import first_line, past_line

_PIECE: Final = 500
"""Requests read at once for an export."""

app = typer.Typer(help="Search, export and count past requests.", no_args_is_help=True, rich_markup_mode=None)


class Scope(StrEnum):
    """Whose requests."""

    ALL = "all"
    MINE = "mine"
    TEAM = "team"


class Days(StrEnum):
    """The span of figures."""

    WEEK = "7"
    MONTH = "30"
    QUARTER = "90"


class Form(StrEnum):
    """The form of an export."""

    CSV = "csv"
    JSONL = "jsonl"


@dataclass(frozen=True)
class _Search:
    fields: dict[str, Any]

    async def page(self, client: Client, after: str, limit: int) -> PastRequestList:
        return await client.decisions(**self.fields, after=after, limit=limit)

    async def every(self, client: Client) -> AsyncGenerator[PastRequest, None]:
        after = ""
        while True:
            page = await self.page(client, after, _PIECE)
            for each in page.decisions:
                yield each
            after = page.next
            if not after:
                return


Text = Annotated[str, typer.Argument(metavar="[TEXT]", help="Words on the card; each must be there.")]
InScope = Annotated[Scope, typer.Option("--scope", help="`mine`: you answered. `team`: asked of one of your roles.")]
Tool = Annotated[str, typer.Option(help="Only calls of this tool.")]
Actor = Annotated[str, typer.Option(help="Only calls of this actor.")]
Who = Annotated[str, typer.Option("--person", help="Only with this requester or approver, by id.")]
State = Annotated[str, typer.Option(help="Only with this end, such as approved, denied or timed_out.")]
Channel = Annotated[str, typer.Option(help="Only answers by this channel, such as inbox or slack.")]
Since = Annotated[str, typer.Option(help="Ended then or later: `2026-01-31` or `2026-01-31T18:00:00Z`, in UTC.")]
Until = Annotated[str, typer.Option(help="Ended before then.")]


@app.command("list")
def list_decisions(
    text: Text = "",
    scope: InScope = Scope.ALL,
    tool: Tool = "",
    actor: Actor = "",
    who: Who = "",
    state: State = "",
    channel: Channel = "",
    since: Since = "",
    until: Until = "",
    after: Annotated[str, typer.Option(help="The next page, as the previous one names it.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=500, help="At most so many.")] = 50,
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the past requests that you may read, newest first."""
    search = _search(text, scope, tool, actor, who, state, channel, since, until, person)

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            page = await search.page(client, after, limit)
        count = f"{page.count}{' or more' if page.more else ''} in all"
        further = f"{count}; next page: --after {page.next}" if page.next else count
        out.show(page, *((_table(page.decisions), "", further) if page.decisions else ("no such requests",)))
        return 0

    run(body, as_json=as_json)


@app.command()
def export(
    text: Text = "",
    form: Annotated[Form, typer.Option("--format", help="CSV, or a JSON object a line.")] = Form.CSV,
    scope: InScope = Scope.ALL,
    tool: Tool = "",
    actor: Actor = "",
    who: Who = "",
    state: State = "",
    channel: Channel = "",
    since: Since = "",
    until: Until = "",
    person: Answerer = "",
    url: Url = None,
) -> None:
    """Write the past requests that you may read, newest first."""
    search = _search(text, scope, tool, actor, who, state, channel, since, until, person)

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            sys.stdout.write(first_line(form.value))
            async for each in search.every(client):
                sys.stdout.write(past_line(each, form.value))
        return 0

    run(body, as_json=False)


@app.command()
def stats(
    days: Annotated[Days, typer.Option(help="Count decisions of so many days.")] = Days.MONTH,
    person: Answerer = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Show your own figures, or all figures with the role `admin` or `auditor`."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            found = await client.insights(int(days.value), by=person)  # type: ignore[arg-type]
        out.show(found, *insight_lines(found, system_clock()))
        return 0

    run(body, as_json=as_json)


def _search(
    text: str,
    scope: Scope,
    tool: str,
    actor: str,
    who: str,
    state: str,
    channel: str,
    since: str,
    until: str,
    person: str,
) -> _Search:
    named = {"tool": tool, "actor": actor, "person": who, "state": state, "channel": channel, "by": person}
    times = {"since": _moment(since, "--since"), "until": _moment(until, "--until")}
    return _Search({"text": text, "scope": scope.value, **named, **times})


def _moment(written: str, option: str) -> datetime | None:
    if not written:
        return None
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        raise typer.BadParameter(f"`{written}` is no day or time: write `2026-01-31`", param_hint=option) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _table(requests: Sequence[PastRequest]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("Code", "Ended (UTC)", "End", "What", "For", "By"):
        table.add_column(name, no_wrap=name in ("Code", "Ended (UTC)"), overflow="fold")
    for each in requests:
        by = clean(each.decided_name or each.decided_by)
        when = f"{each.over_at:%Y-%m-%d %H:%M}"
        table.add_row(show_code(each.code), when, each.state, clean(each.effect), clean(each.requester), by)
    return table
