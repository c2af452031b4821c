"""`token create`, `token list` and `token revoke`: tokens of people, for API and sign-in, and of agents."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, get_args

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from signoff.approvals.audit_events import admin_entry
from signoff.audit.log import entry_writer
from signoff.cli.local.installation import LocalInstallation, account, find_installation
from signoff.cli.terminal.options import AppOption, AsJson, Tenant
from signoff.cli.terminal.output import Output, run
from signoff.cli.terminal.tables import ago, clean
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import NotFound, Refused
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.durations import seconds
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.settings import load_settings
from signoff.store.store import Also, working_store
from signoff.store.tokens import ACTOR, CALL, Scope, Token, Tokens
from signoff.texts.formatter import span

app = typer.Typer(help="Make, list and revoke personal tokens.", no_args_is_help=True, rich_markup_mode=None)


def _scope(text: str) -> Scope:
    for scope in get_args(Scope):
        if scope == text:
            found: Scope = scope
            return found
    raise typer.BadParameter(f"`{text}` is no scope; there are {', '.join(get_args(Scope))}")


def _lifetime(text: str) -> timedelta:
    try:
        return timedelta(seconds=seconds(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command()
def create(
    person: Annotated[
        str,
        typer.Argument(metavar="PERSON", help="The owner: a person's id, or an agent's name with the scope call."),
    ],
    scope: Annotated[
        list[str],
        typer.Option(help="The scope: read, decide or start, repeatable; or only call or peer, for agents."),
    ],
    expires: Annotated[str, typer.Option(help="How long it lives, such as 30d or 12h; 366 days at most.")] = "30d",
    tenant: Tenant = DEFAULT_TENANT,
    source: AppOption = "",
    as_json: AsJson = False,
) -> None:
    """Make a token and print it once; only its hash is stored."""
    scopes, lifetime = [_scope(each) for each in scope], _lifetime(expires)

    async def body(out: Output) -> int:
        place = find_installation(source)
        owner_tenant, owner = _holder(place, person, tenant, agent=CALL in scopes)
        async with working_store(place.settings) as store:
            secret, token = await Tokens(store).create(
                owner_tenant, owner, scopes, lifetime=lifetime, now=system_clock(), also=_record_act("token create")
            )
        out.show(
            {"token": secret, **token.model_dump(mode="json")},
            secret,
            f"token {token.id} of {_owner(token)} may {', '.join(token.scopes)} until "
            f"{token.expires_at:%Y-%m-%d %H:%M} UTC; it is not shown again",
        )
        return 0

    run(body, as_json=as_json)


@app.command("list")
def list_tokens(tenant: Tenant = DEFAULT_TENANT, as_json: AsJson = False) -> None:
    """List all tokens of a tenant, newest first: owner, scopes, expiry and last use."""

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            found = await Tokens(store).all(tenant)
        out.show(found, _table(found, system_clock()) if found else "no tokens; `signoff token create` makes one")
        return 0

    run(body, as_json=as_json)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, as `signoff token list` shows it.")],
    tenant: Tenant = DEFAULT_TENANT,
    as_json: AsJson = False,
) -> None:
    """Revoke a token: it ends now, and every browser that signed in with it is signed out."""

    async def body(out: Output) -> int:
        async with working_store(load_settings()) as store:
            ended = await Tokens(store).revoke(token, tenant, system_clock(), also=_record_act("token revoke"))
        out.show(ended, f"token {ended.id} of {_owner(ended)} is revoked")
        return 0

    run(body, as_json=as_json)


def _holder(place: LocalInstallation, name: str, tenant: str, *, agent: bool) -> tuple[str, str]:
    """Raises `NotFound`, or `Refused` for an inactive person."""
    if agent:
        known = [each for each, actor in place.catalog.actors.items() if actor.external is not None]
        if name not in known:
            raise NotFound(f"the manifest has no external agent {quote_name(name)}{did_you_mean(name, known)}")
        return tenant, f"{ACTOR}{name}"
    found = place.person(name, tenant)
    if not found.active:
        raise Refused(f"`{found.id}` is not active: nothing could be done with this token")
    return found.tenant, found.id


def _record_act(name: str) -> Callable[[Token], Also]:
    """Use the operating system's account: the command line has no sign-in."""

    def write(token: Token) -> Also:
        facts: dict[str, Any] = {
            "token": token.id,
            "person": token.person,
            "scopes": list(token.scopes),
            "account": account(),
        }
        entry = admin_entry(
            token.tenant, name, "", system_clock(), expires_at=token.expires_at.isoformat(), channel="cli", **facts
        )
        return entry_writer([entry])

    return write


def _owner(token: Token) -> str:
    return token.person if token.tenant == DEFAULT_TENANT else f"{token.person} of {token.tenant}"


def _table(tokens: list[Token], now: datetime) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("Token", "Person", "May", "State", "Last used"):
        table.add_column(column, no_wrap=column == "Token", overflow="fold")
    for token in tokens:
        used = ago(token.used_at, now) or "never"
        table.add_row(token.id, clean(token.person), ", ".join(token.scopes), _state(token, now), used)
    return table


def _state(token: Token, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text("revoked", style="red")
    if now >= token.expires_at:
        return Text("expired", style="red")
    return Text(f"for another {span((token.expires_at - now).total_seconds())}", style="green")
