"""`freeze` and `thaw`: the kill switch."""

from pathlib import Path
from typing import Annotated, Final

import typer

from signoff.approvals.entries import act
from signoff.audit.log import writing
from signoff.cli.options import Address, AsJson, Decider, Manifest
from signoff.cli.output import Output, run
from signoff.cli.parts import working_store
from signoff.cli.words import clean, utc_now
from signoff.cli.workplace import Workplace, find_workplace
from signoff.contracts.decision import Decision
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.grant import Freeze
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.keyfiles import read_private
from signoff.killswitch import Sign, Swept, check_operator, sweep
from signoff.signing import Signer
from signoff.store.freezes import Freezes

PATIENCE_SECONDS: Final = 60.0

app = typer.Typer(rich_markup_mode=None)

Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant; `main` unless there are several.")]


@app.command()
def freeze(
    tenant: Tenant,
    reason: Annotated[str, typer.Option(help="Why; the agents and everybody who was asked read it.")],
    person: Decider = "approver",
    manifest: Manifest = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Deny everything in a tenant until it is thawed: nothing new starts, and what waits is withdrawn."""
    if not 0 < len(reason.strip()) <= REASON_CHARS:
        raise typer.BadParameter(f"say why, in 1 to {REASON_CHARS} characters", param_hint="--reason")
    run(lambda out: _freeze(out, tenant, reason.strip(), person, manifest, address), as_json=as_json)


@app.command()
def thaw(tenant: Tenant, person: Decider = "approver", manifest: Manifest = None, as_json: AsJson = False) -> None:
    """Lift a freeze; what was denied meanwhile stays denied."""
    run(lambda out: _thaw(out, tenant, person, manifest), as_json=as_json)


async def _freeze(
    out: Output, tenant: str, reason: str, person_id: str, manifest: Path | None, address: str | None
) -> int:
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        seen = writing([act(tenant, "freeze", person.id, utc_now(), reason=reason, channel="cli")])
        standing = await Freezes(store).freeze(tenant, reason=reason, by=person.id, also=seen)
    out.say(_line(standing))
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


async def _thaw(out: Output, tenant: str, person_id: str, manifest: Path | None) -> int:
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        seen = writing([act(tenant, "thaw", person.id, utc_now(), channel="cli")])
        lifted = await Freezes(store).thaw(tenant, also=seen)
    if lifted is None:
        raise NotFound(f"the tenant `{clean(tenant)}` is not frozen")
    out.show(lifted, f"thawed: {tenant}, frozen by {lifted.by} since {lifted.at:%Y-%m-%d %H:%M} UTC")
    return 0


def operator(place: Workplace, person_id: str, tenant: str) -> Person:
    """The person of this id in the tenant, if they may use the kill switch. Raises `NotFound`, `Refused`."""
    person = place.people.find(person_id, tenant)
    if person is None:
        raise NotFound(f"there is no person `{clean(person_id)}` in the tenant `{clean(tenant)}`")
    development = place.settings.profile == "development"
    check_operator(person, place.catalog.default_approvers, development=development)
    return person


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
    return f"frozen: {standing.tenant} by {standing.by} since {since}: {clean(standing.reason)}; nothing of it starts"


def _told(swept: Swept) -> list[str]:
    lines = [f"withdrawn: {swept.withdrawn} of what waited"]
    if swept.waiting:
        lines.append("still waiting, though none of it would run; freeze again to go on:")
        lines += [f"  {each}" for each in swept.waiting]
    return lines
