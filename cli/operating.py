"""What operators do with this installation's own store: freeze, thaw, and take back what is remembered."""

from pathlib import Path
from typing import Any, Final

from signoff.approvals.audit_events import act
from signoff.audit.log import writing
from signoff.cli.local.installation import Workplace, account, find_workplace
from signoff.cli.local.stores import working_store
from signoff.cli.terminal.output import Output
from signoff.cli.terminal.tables import clean, frozen_line, swept_lines
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import system_clock
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.grant import Freeze, Grant, Swept
from signoff.contracts.names import DEFAULT_DECIDER
from signoff.contracts.person import Person
from signoff.engine.kill_switch import check_operator
from signoff.formats.nearest_name import shown
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.freeze_service import sweep_tenant
from signoff.keys.key_files import read_private
from signoff.keys.signatures import Signer
from signoff.store.freezes import Freezes
from signoff.store.grants import Grants, shown_grant

PATIENCE_SECONDS: Final = 60.0

UNPROVED: Final = "an operator of this machine, unproved"
"""Who acts where the production profile knows nobody: whoever holds the store's address. Never a person's id."""

_NOT_SWEPT: Final = (
    "nothing was withdrawn, which takes a person, but none of it would run: to withdraw it freeze again in the inbox, "
    "or with a token in SIGNOFF_TOKEN"
)


async def freeze_here(
    out: Output, tenant: str, reason: str, person_id: str, manifest: Path | None, address: str | None
) -> int:
    """Freeze as the person of this id, and withdraw what waits; 1 where something still waits or nothing was withdrawn.

    Raises `NotFound`, `Refused`, `ConfigError`, `StoreUnavailable`.
    """
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        # Written in one transaction with the freeze: neither is there without the other.
        seen = writing([told(tenant, "freeze", person, reason=reason)])
        standing = await Freezes(store).freeze(tenant, reason=reason, by=named(person), also=seen)
    out.say(frozen_line(standing))
    if person is None:
        out.show({"freeze": standing, "swept": None}, _NOT_SWEPT)
        return 1
    try:
        swept = await _swept(place, tenant, person, standing, address)
    except ServerUnavailable as error:
        # The row stands whatever becomes of the sweep.
        out.show({"freeze": standing, "swept": None}, f"nothing was withdrawn: {error.message}")
        return 1
    out.show({"freeze": standing, "swept": swept}, *swept_lines(swept))
    return 1 if swept.waiting else 0


async def thawed_here(tenant: str, person_id: str, manifest: Path | None) -> Freeze:
    """Lift the freeze as the person of this id. Raises `NotFound`, `Refused`, `ConfigError`, `StoreUnavailable`."""
    place = find_workplace(manifest)
    person = operator(place, person_id, tenant)
    async with working_store(place.settings) as store:
        seen = writing([told(tenant, "thaw", person)])
        lifted = await Freezes(store).thaw(tenant, also=seen)
    if lifted is None:
        raise NotFound(f"the tenant `{clean(tenant)}` is not frozen")
    return lifted


async def grants_here(tenant: str, manifest: Path | None, *, every: bool) -> list[Grant]:
    """What is remembered in a tenant, newest first, as people may see it. Raises `ConfigError`, `StoreUnavailable`."""
    async with working_store(find_workplace(manifest).settings) as store:
        return [shown_grant(grant) for grant in await Grants(store).all(tenant, every=every)]


async def revoked_here(grant: str, person_id: str, tenant: str, manifest: Path | None) -> tuple[Grant, bool]:
    """Take a grant back as the person of this id; and whether it was before.

    Raises `NotFound`, `Refused`, `ConfigError`, `StoreUnavailable`.
    """
    place = find_workplace(manifest)
    production = place.settings.profile == "production"
    who = None if production and not person_id else place.speaker(person_id or DEFAULT_DECIDER, tenant)
    async with working_store(place.settings) as store:
        grants = Grants(store)
        found = await grants.look(grant)
        # One of another tenant's is told like none: ids must not tell what another tenant remembers.
        if found is None or found.like.tenant != tenant:
            raise NotFound(f"there is no grant `{clean(grant)}`; `signoff grants list` shows those there are")
        if who is not None and who.id not in found.people:
            operator(place, who.id, tenant)
        seen = told(tenant, "revoke", who, kind="grant", grant=found.id)
        gone = await grants.revoke(found.id, tenant, by=named(who), also=writing([seen]))
        return shown_grant(gone), found.revoked_at is not None


async def _swept(place: Workplace, tenant: str, person: Person, standing: Freeze, address: str | None) -> Swept:
    keys = place.settings.signing_keys
    signer = Signer(read_private(keys)) if keys.exists() else None
    async with working_store(place.settings) as store:
        signoff = await place.reach(address)
        deps = GatewayDeps(signoff, place.catalog, place.people, store, place.settings, signer=signer)
        return await sweep_tenant(deps, person, standing.reason, PATIENCE_SECONDS)


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
    return act(tenant, name, "" if person is None else person.id, system_clock(), channel="cli", **facts)
