"""`grants list` and `grants revoke`: what people had remembered."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from signoff.approvals.entries import act
from signoff.audit.log import writing
from signoff.cli.freeze import operator
from signoff.cli.options import AsJson, Decider, Manifest
from signoff.cli.output import Output, run
from signoff.cli.parts import working_store
from signoff.cli.words import clean, span, utc_now
from signoff.cli.workplace import find_workplace
from signoff.contracts.errors import NotFound
from signoff.contracts.grant import Grant
from signoff.contracts.names import DEFAULT_TENANT
from signoff.store.grants import Grants, shown_grant

Tenant = Annotated[str, typer.Option(help="The tenant it is remembered in.")]

app = typer.Typer(help="List and take back answers that are remembered.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_grants(
    every: Annotated[bool, typer.Option("--all", help="Also what is over, used up or taken back.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
    manifest: Manifest = None,
    as_json: AsJson = False,
) -> None:
    """List what is remembered, newest first."""

    async def body(out: Output) -> int:
        place = find_workplace(manifest)
        async with working_store(place.settings) as store:
            found = [shown_grant(grant) for grant in await Grants(store).all(tenant, every=every)]
        out.show(found, grant_table(found, utc_now()) if found else "nothing is remembered")
        return 0

    run(body, as_json=as_json)


@app.command()
def revoke(
    grant: Annotated[str, typer.Argument(metavar="ID", help="As `signoff grants list` shows it.")],
    person: Decider = "approver",
    tenant: Tenant = DEFAULT_TENANT,
    manifest: Manifest = None,
    as_json: AsJson = False,
) -> None:
    """Take a remembered answer back: from now on people are asked again."""

    async def body(out: Output) -> int:
        place = find_workplace(manifest)
        who = place.person(person, tenant)
        async with working_store(place.settings) as store:
            grants = Grants(store)
            found = await grants.look(grant)
            if found is None or found.like.tenant != tenant:
                raise NotFound(f"there is no grant `{clean(grant)}`; `signoff grants list` shows those there are")
            if who.id not in found.people:
                operator(place, who.id, tenant)
            told = act(tenant, "revoke", who.id, utc_now(), kind="grant", grant=found.id, channel="cli")
            gone = shown_grant(await grants.revoke(found.id, tenant, by=who.id, also=writing([told])))
        out.show(gone, f"taken back: {gone.id}, {_what(gone)}")
        return 0

    run(body, as_json=as_json)


def grant_table(grants: Sequence[Grant], now: datetime) -> RenderableType:
    """What is remembered, one line each, in the order given."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("Id", "What", "Where", "By", "Left", "Until"):
        table.add_column(name, no_wrap=name == "Id", overflow="fold")
    for grant in grants:
        where = f"session {grant.like.session}" if grant.like.session else "everywhere"
        table.add_row(grant.id, _what(grant), where, ", ".join(grant.people), _left(grant), _until(grant, now))
    return table


def _what(grant: Grant) -> str:
    like = f"where {clean(grant.like.where)}" if grant.like.where else "with the same arguments"
    return f"{grant.verdict}: {grant.like.tool} {like}"


def _left(grant: Grant) -> str:
    return f"{grant.uses_left} of {grant.uses}"


def _until(grant: Grant, now: datetime) -> str:
    if grant.revoked_at is not None:
        return f"taken back by {clean(grant.revoked_by)}"
    left = (grant.expires_at - now).total_seconds()
    return f"{grant.expires_at:%Y-%m-%d %H:%M} UTC ({f'in {span(left)}' if left > 0 else 'over'})"
