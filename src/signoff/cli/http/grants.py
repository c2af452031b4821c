"""`grants list` and `grants revoke`: remembered answers."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from signoff.cli.http.gateway_client import gateway_client
from signoff.cli.terminal.options import AsJson, Operator, Url
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import clean
from signoff.contracts.clock import system_clock
from signoff.contracts.grant import Grant
from signoff.texts.formatter import span

Tenant = Annotated[str, typer.Option(help="The tenant it is remembered in; else `main`, or that of the token.")]

app = typer.Typer(help="List and revoke remembered answers.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_grants(
    every: Annotated[bool, typer.Option("--all", help="Also expired, used up and revoked ones.")] = False,
    tenant: Tenant = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List remembered answers, newest first."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            grants = await client.grants(every=every, tenant=tenant)
        out.show(grants, grant_table(grants, system_clock()) if grants else "no remembered answers")
        return 0

    run(body, as_json=as_json)


@app.command()
def revoke(
    grant: Annotated[str, typer.Argument(metavar="ID", help="As `signoff grants list` shows it.")],
    person: Operator = "",
    tenant: Tenant = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a remembered answer: approvers are asked again from now on."""

    async def body(out: Output) -> int:
        async with gateway_client(url) as client:
            # List before revoking: afterwards the grant is revoked in any case.
            known = await client.grants(every=True, tenant=tenant)
            again = any(each.id == grant and each.revoked_at is not None for each in known)
            gone = await client.revoke(grant, by=person, tenant=tenant)
        done = f"was taken back already, by {clean(gone.revoked_by)}" if again else "taken back"
        out.show(gone, f"{done}: {gone.id}, {_what(gone)}")
        return 0

    run(body, as_json=as_json)


def grant_table(grants: Sequence[Grant], now: datetime) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("Id", "What", "Where", "By", "Left", "Until"):
        table.add_column(name, no_wrap=name == "Id", overflow="fold")
    for grant in grants:
        where = f"session {grant.like.session}" if grant.like.session else "everywhere"
        table.add_row(grant.id, _what(grant), where, ", ".join(grant.people), _describe_rest(grant), _until(grant, now))
    return table


def _what(grant: Grant) -> str:
    like = f"where {clean(grant.like.where)}" if grant.like.where else "with the same arguments"
    return f"{grant.verdict}: {grant.like.tool} {like}"


def _describe_rest(grant: Grant) -> str:
    return f"{grant.uses_left} of {grant.uses}"


def _until(grant: Grant, now: datetime) -> str:
    if grant.revoked_at is not None:
        return f"taken back by {clean(grant.revoked_by)}"
    left = (grant.expires_at - now).total_seconds()
    return f"{grant.expires_at:%Y-%m-%d %H:%M} UTC ({f'in {span(left)}' if left > 0 else 'over'})"
