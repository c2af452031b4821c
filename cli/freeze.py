"""`freeze` and `thaw`: the kill switch."""

from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from signoff.approvals.entries import act
from signoff.audit.log import writing
from signoff.cli.options import Address, AsJson, Manifest, Operator, Url
from signoff.cli.output import Output, run
from signoff.cli.parts import working_store
from signoff.cli.remote import at_gateway, gateway_url
from signoff.cli.words import clean, utc_now
from signoff.cli.workplace import Workplace, account, find_workplace
from signoff.contracts.audit import AuditEntry
from signoff.contracts.decision import Decision
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.grant import Freeze
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.gateway.freezing import Frozen
from signoff.gateway.identity import DEFAULT_DECIDER
from signoff.keyfiles import read_private
from signoff.killswitch import Sign, Swept, check_operator, sweep
from signoff.registry.nearest import shown
from signoff.signing import Signer
from signoff.store.freezes import Freezes

PATIENCE_SECONDS: Final = 60.0

UNPROVED: Final = "an operator of this machine, unproved"
"""Who acts where the production profile knows nobody: whoever holds the store's address. Never a person's id."""

_NOT_SWEPT: Final = (
    "nothing was withdrawn, which takes a person, but none of it would run: to withdraw it freeze again in the inbox, "
    "or with a token in SIGNOFF_TOKEN"
)

app = typer.Typer(rich_markup_mode=None)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant; `main` unless there are several.")]


@app.command()
def freeze(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="Why; the agents and everybody who was asked read it.")],
    person: Operator = "",
    manifest: Manifest = None,
    address: Address = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Deny everything in a tenant until it is thawed: nothing new starts, and what waits is withdrawn."""
    words = reason.strip()
    if not 0 < len(words) <= REASON_CHARS:
        raise typer.BadParameter(f"say why, in 1 to {REASON_CHARS} characters", param_hint="--reason")

    async def body(out: Output) -> int:
        there = gateway_url(url, manifest, address)
        if there is not None:
            return await _freeze_there(out, there, tenant, words, person)
        return await _freeze(out, tenant, words, person, manifest, address)

    run(body, as_json=as_json)


@app.command()
def thaw(
    tenant: Tenant, person: Operator = "", manifest: Manifest = None, url: Url = None, as_json: AsJson = False
) -> None:
    """Lift a freeze; what was denied meanwhile stays denied."""

    async def body(out: Output) -> int:
        there = gateway_url(url, manifest, None)
        if there is None:
            lifted = await _thawed(tenant, person, manifest)
        else:
            async with at_gateway(there, person) as gateway:
                path = f"/v1/freezes/{quote(tenant, safe='')}"
                lifted = await gateway.call(Freeze, "DELETE", path, params=gateway.acting, json={})
        since = f"{lifted.at:%Y-%m-%d %H:%M} UTC"
        out.show(lifted, f"thawed: {clean(tenant)}, frozen by {clean(lifted.by)} since {since}")
        return 0

    run(body, as_json=as_json)


async def _freeze_there(out: Output, there: str, tenant: str, reason: str, person: str) -> int:
    async with at_gateway(there, person) as gateway:
        sent = {"tenant": tenant, "reason": reason, **gateway.acting}
        frozen = await gateway.call(Frozen, "POST", "/v1/freezes", json=sent)
    out.show(frozen, _line(frozen.freeze), *_told(frozen.swept))
    return 1 if frozen.swept.waiting else 0


async def _freeze(
    out: Output, tenant: str, reason: str, person_id: str, manifest: Path | None, address: str | None
) -> int:
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        seen = writing([told(tenant, "freeze", person, reason=reason)])
        standing = await Freezes(store).freeze(tenant, reason=reason, by=named(person), also=seen)
    out.say(_line(standing))
    if person is None:
        out.show({"freeze": standing, "swept": None}, _NOT_SWEPT)
        return 1
    try:
        swept = await _swept(place, tenant, person, standing, address)
    except ServerUnavailable as error:
        # The row stands whatever becomes of the sweep.
        out.show({"freeze": standing, "swept": None}, f"nothing was withdrawn: {error.message}")
        return 1
    out.show({"freeze": standing, "swept": swept}, *_told(swept))
    return 1 if swept.waiting else 0


async def _swept(place: Workplace, tenant: str, person: Person, standing: Freeze, address: str | None) -> Swept:
    signoff = await place.reach(address)
    return await sweep(
        signoff, tenant, by=person, reason=standing.reason, sign=_signature(place), patience=PATIENCE_SECONDS
    )


async def _thawed(tenant: str, person_id: str, manifest: Path | None) -> Freeze:
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        seen = writing([told(tenant, "thaw", person)])
        lifted = await Freezes(store).thaw(tenant, also=seen)
    if lifted is None:
        raise NotFound(f"the tenant `{clean(tenant)}` is not frozen")
    return lifted


def operator(place: Workplace, person_id: str, tenant: str) -> Person | None:
    """The person of this id in the tenant, if they may act for all of it; None for nobody known.

    Nobody is known in the production profile, where this is for whoever can write to the store; there nobody is taken
    at their word. Raises `NotFound`, `Refused`, `ConfigError` for a name in the production profile.
    """
    if place.settings.profile == "production" and not person_id:
        if not place.people.all(tenant):
            raise NotFound(f"nobody is in the tenant {shown(tenant)}")
        return None
    person = place.speaker(person_id or DEFAULT_DECIDER, tenant)
    development = place.settings.profile == "development"
    check_operator(person, place.catalog.default_approvers, development=development)
    return person


def named(person: Person | None) -> str:
    """What a row says of who did it."""
    return UNPROVED if person is None else person.id


def told(tenant: str, name: str, person: Person | None, **facts: Any) -> AuditEntry:
    """The record of an act: the person, or nobody and the operating system's account."""
    if person is None:
        facts |= {"by": UNPROVED, "account": account()}
    return act(tenant, name, "" if person is None else person.id, utc_now(), channel="cli", **facts)


def _signature(place: Workplace) -> Sign:
    """How withdrawals are signed: with the gateway's key where this process may read it."""
    keys = place.settings.signing_keys
    if not keys.exists():
        return lambda wish: wish
    signer = Signer(read_private(keys))

    def sign(wish: Decision) -> Decision:
        return signer.sign_decision(wish)

    return sign


def _line(standing: Freeze) -> str:
    since = f"{standing.at:%Y-%m-%d %H:%M} UTC"
    who = clean(standing.by)
    return f"frozen: {standing.tenant} by {who} since {since}: {clean(standing.reason)}; nothing of it starts"


def _told(swept: Swept) -> list[str]:
    lines = [f"withdrawn: {swept.withdrawn} of what waited"]
    if swept.waiting:
        lines.append("still waiting, though none of it would run; freeze again to go on:")
        lines += [f"  {each}" for each in swept.waiting]
    return lines
