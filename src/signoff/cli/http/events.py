"""`events`: read and follow a tenant's events, and retry failed deliveries to subscriptions."""

from typing import Annotated, Final

import typer

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.options import AsJson, Operator, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.audit import CloudEvent
from signoff.contracts.errors import ServerUnavailable

Turn = Annotated[str, typer.Option(help="Only events of this turn. Readers of the turn may read them.")]
Tenant = Annotated[str, typer.Option(help="The tenant; else `main`, or that of the token.")]
_SHOWN: Final = ("tool", "code", "verdict", "ended", "state", "error", "person")
"""The facts shown on a line, in this order. JSON has all."""

app = typer.Typer(help="Read and follow events.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_events(
    after: Annotated[int | None, typer.Option(min=0, help="Those after this number; else the newest.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 50,
    turn: Turn = "",
    tenant: Tenant = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List events in the order in which they happened."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            begin = after or 0
            if after is None and not turn:
                kept = await client.events(limit=1, tenant=tenant)
                begin = max(kept.newest - limit, kept.oldest - 1, 0)
            found = await client.events(after=begin, limit=limit, turn=turn, tenant=tenant)
        out.show(found, *(map(event_line, found.events) if found.events else ("nothing happened",)))
        return 0

    run(body, as_json=as_json)


@app.command()
def follow(
    after: Annotated[int | None, typer.Option(min=0, help="From after this number on; else from now on.")] = None,
    count: Annotated[int, typer.Option(min=0, help="End after so many; 0 for never.")] = 0,
    turn: Turn = "",
    tenant: Tenant = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print events as they happen; with --json one line each."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            last = (await client.events(limit=1, turn=turn, tenant=tenant)).newest if after is None else after
            left = count
            try:
                async for event in client.follow_events(after=last, turn=turn, tenant=tenant):
                    out.show(event, event_line(event), compact=True)
                    last, left = event.number, left - 1
                    if left == 0:
                        break
            except ServerUnavailable as error:
                message = f"{error.message}; `signoff events follow --after {last}` continues from there"
                raise ServerUnavailable(message) from None
        return 0

    run(body, as_json=as_json)


@app.command("failed")
def list_failed(tenant: Tenant = "", url: Url = None, as_json: AsJson = False) -> None:
    """List the events whose deliveries to subscriptions failed after all retries."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            found = await client.failed_events(tenant=tenant)
        lines = [f"{clean(each.subscription)}: {clean(each.code)}{event_line(each.event)}" for each in found]
        out.show(found, *(lines or ["everything arrived, or is still tried"]))
        return 0

    run(body, as_json=as_json)


@app.command()
def retry(
    subscription: Annotated[str, typer.Argument(metavar="[NAME]", help="Of this subscription; else of all.")] = "",
    person: Operator = "",
    tenant: Tenant = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Send the failed events again."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            found = await client.retry_events(subscription, by=person, tenant=tenant)
        out.show(found, f"tried again: {found.retried}")
        return 0

    run(body, as_json=as_json)


def event_line(event: CloudEvent) -> str:
    facts = (f"{name}={event.data[name]}" for name in _SHOWN if name in event.data)
    marks = (mark for mark, is_set in (("private", event.private), ("unproved", event.claimed)) if is_set)
    words = (event.time[:19].replace("T", " "), event.type, event.subject, *facts, *marks)
    return "  ".join((f"{event.number:>6}", *map(clean, words)))
