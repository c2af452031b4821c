"""Keeps people who sign in by a provider's word alone: written down with the gateway's signature, and known by it."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.people.addresses import claimed_names
from signoff.people.claims import ClaimsDirectory, ClaimsMapping, login_from_claims
from signoff.people.directory import Directory, declared_people
from signoff.people.login import id_from_login
from signoff.people.people_file import CHECK_SECONDS
from signoff.people.vouched_directory import VouchedPerson, joined_logins, vouch, vouched_people
from signoff.registry.approver_coverage import approvers_without_login
from signoff.registry.catalog import Catalog
from signoff.settings import Settings
from signoff.store.vouched_people import VouchedPeople

_log = logging.getLogger(__name__)
_NAMED: Final = 10


def with_provider_people(deps: GatewayDeps) -> GatewayDeps:
    """Returns `deps` whose directory knows those, too, for whom a provider vouches, where one is named.

    Logs a warning where approvers who are declared could come in as somebody else.
    """
    settings = deps.settings
    if settings.oidc_issuer is None or isinstance(deps.people, ClaimsDirectory):
        return deps
    if lacking := missing_logins_warning(deps.catalog, declared_people(deps.people), settings):
        _log.warning("%s", lacking)
    mapping = ClaimsMapping(
        groups_claim=settings.oidc_groups_claim,
        roles=settings.oidc_roles,
        tenant_claim=settings.oidc_tenant_claim,
        tenants=settings.oidc_tenants,
    )
    return dataclasses.replace(deps, people=ClaimsDirectory(deps.people, mapping))


def second_login(facts: Mapping[str, object]) -> str:
    """Says what operators are told of a login that claims a name of the declared person `facts` names, and the
    remedy.
    """
    person, login = facts.get("person"), "".join(c if c.isprintable() else "?" for c in str(facts.get("login")))
    return (
        f"the login `{login}` claims an address or user name of the declared person `{person}`; if it is theirs, write "
        f"`oidc: ['{login}']` in the `identities` of `{person}`, and if somebody else's, declare them with it"
    )


def missing_logins_warning(catalog: Catalog, people: Directory, settings: Settings) -> str:
    """Returns a warning where groups give roles and people whom tools ask have no login written down; "" without
    one.
    """
    if settings.oidc_issuer is None or not settings.oidc_roles:
        return ""
    lacking = approvers_without_login(catalog, people, settings.oidc_issuer)
    named = ", ".join(f"`{each}`" for each in lacking[:_NAMED])
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    if not lacking:
        return ""
    return (
        f"groups of `{settings.oidc_issuer}` give roles, and these declared approvers have no login there: {named}"
        f"{more}; write `oidc: ['{settings.oidc_issuer}#SUBJECT']` in their `identities`, or a login of theirs that "
        "tells none of their addresses counts as another person"
    )


class ProviderPeople:
    """Knows those for whom logins vouched, as the store has them; looked at once a second at most.

    A gateway without keys, which only development allows, signs nothing: there such people are known to it alone. The
    codec server has public keys, and knows those whom gateways vouched for.
    """

    def __init__(self, deps: GatewayDeps, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._deps = deps
        self._people = deps.people if isinstance(deps.people, ClaimsDirectory) else None
        self._rows = VouchedPeople(deps.store)
        self._clock = clock
        self._looking = asyncio.Lock()
        self._due = 0.0

    async def look(self) -> None:
        """Knows whom the store knows now. Raises `StoreUnavailable`."""
        people, verifier = self._people, self._deps.verifier()
        if people is None or not verifier.key_ids:
            return
        # Every request comes by here: one reads the rows, the others wait and find it done.
        async with self._looking:
            if self._clock() < self._due:
                return
            # Taken before the reading and kept only if that went well: a store that failed is asked again at once.
            due = self._clock() + CHECK_SECONDS
            rows = await self._rows.all()
            known = vouched_people(rows, people.declared, verifier, self._deps.clock())
            people.replace_people(known, joined_logins(rows, people.declared, verifier))
            self._due = due

    async def admit(self, claims: Mapping[str, Any]) -> tuple[Person, VouchedPerson | None]:
        """Says whom verified claims are about, and what is to be written of them if nobody declared them.

        What an earlier login said of them ends where this one makes nobody, or somebody declared, of them. Raises
        `Refused` for whom nobody knows, `StoreUnavailable`.
        """
        people, signer, now = self._people, self._deps.signer, self._deps.clock()
        if people is None:
            raise Refused("nobody is known by a login here")
        own_id = id_from_login(login_from_claims(claims))
        try:
            person = people.admit(claims)
        # Who lost their last group is out by this sign-in, not when the earlier one's word runs out.
        except Refused as error:
            if "person" in error.context:
                _log.warning("a sign-in was refused: %s", second_login(error.context))
            await self._end(own_id, but="")
            raise
        tenant = person.tenant
        # Who is of another tenant by now is no longer anybody in the one before.
        await self._end(own_id, but=tenant)
        # Somebody declares this person by now: a row left standing would be a second one with roles of its own.
        if person.id != own_id or people.declared.find(own_id, tenant) is not None:
            # One that tells whose login it was does not count either, and joins what they asked by it with them.
            if people.person_id(own_id, tenant) == own_id:
                await self._rows.end(tenant, own_id, by="", now=now)
            return person, None
        if signer is None:
            return person, None
        lifetime = timedelta(days=self._deps.settings.oidc_days)
        return person, vouch(signer, person, names=claimed_names(claims), now=now, lifetime=lifetime)

    async def _end(self, own_id: str, *, but: str) -> None:
        """Ends what logins said of a person in all tenants `but` one."""
        for row in await self._rows.all():
            if row.person.id == own_id and row.person.tenant != but:
                await self._rows.end(row.person.tenant, own_id, by="", now=self._deps.clock())

    def look_again(self) -> None:
        """Looks at the store at the next request, whatever the time: something was written."""
        self._due = 0.0
