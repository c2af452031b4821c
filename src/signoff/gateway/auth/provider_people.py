"""People known by a provider's claims alone. The gateway signs their rows and stores them."""

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
from signoff.people.on_call import OnCallDirectory
from signoff.people.people_file import CHECK_SECONDS
from signoff.people.vouched_directory import VouchedPerson, joined_logins, vouch, vouched_people
from signoff.registry.approver_coverage import approvers_without_login
from signoff.registry.catalog import Catalog
from signoff.settings import Settings
from signoff.store.vouched_people import VouchedPeople

_log = logging.getLogger(__name__)
_NAMED: Final = 10


def with_provider_people(deps: GatewayDeps) -> GatewayDeps:
    """Add rotas and the provider's people to the directory.

    Logs a warning if declared approvers could sign in as a different person.
    """
    settings, people = deps.settings, deps.people
    if isinstance(people, ClaimsDirectory | OnCallDirectory):
        return deps
    if lacking := missing_logins_warning(deps.catalog, declared_people(people), settings):
        _log.warning("%s", lacking)
    if deps.catalog.on_call:
        tenants = {name: rota.tenant for name, rota in deps.catalog.on_call.items()}
        people = OnCallDirectory(people, deps.rotas, tenants)
    if settings.oidc_issuer is None:
        return deps if people is deps.people else dataclasses.replace(deps, people=people)
    mapping = ClaimsMapping(
        groups_claim=settings.oidc_groups_claim,
        roles=settings.oidc_roles,
        tenant_claim=settings.oidc_tenant_claim,
        tenants=settings.oidc_tenants,
    )
    return dataclasses.replace(deps, people=ClaimsDirectory(people, mapping))


def second_login(facts: Mapping[str, object]) -> str:
    person, login = facts.get("person"), "".join(c if c.isprintable() else "?" for c in str(facts.get("login")))
    return (
        f"the login `{login}` claims an address or user name of the declared person `{person}`; if it is theirs, write "
        f"`oidc: ['{login}']` in the `identities` of `{person}`, and if another person's, declare that person with it"
    )


def missing_logins_warning(catalog: Catalog, people: Directory, settings: Settings) -> str:
    """Return a warning if groups give roles and some approvers have no login."""
    if settings.oidc_issuer is None or not settings.oidc_roles:
        return ""
    lacking = approvers_without_login(catalog, people, settings.oidc_issuer)
    named = ", ".join(f"`{each}`" for each in lacking[:_NAMED])
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    if not lacking:
        return ""
    return (
        f"groups of `{settings.oidc_issuer}` give roles, and these declared approvers have no login there: {named}"
        f"{more}; write `oidc: ['{settings.oidc_issuer}#SUBJECT']` in their `identities`, or a login without "
        "one of their addresses counts as another person"
    )


class ProviderPeople:
    """Loads the people behind vouched logins from the store, at most once a second.

    A gateway without keys (development only) signs nothing and alone knows such people. The codec server has public
    keys and knows the people that gateways vouched for.
    """

    def __init__(self, deps: GatewayDeps, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._deps = deps
        self._people = deps.people if isinstance(deps.people, ClaimsDirectory) else None
        self._rows = VouchedPeople(deps.store)
        self._clock = clock
        self._looking = asyncio.Lock()
        self._due = 0.0

    async def look(self) -> None:
        """Load the people if that is due. Raises `StoreUnavailable`."""
        people, verifier = self._people, self._deps.verifier()
        if people is None or not verifier.key_ids:
            return
        # Every request runs this: one reads the rows, the others wait for it.
        async with self._looking:
            if self._clock() < self._due:
                return
            # Compute the time before the read, and set it after: if the store fails, the next request reads again.
            due = self._clock() + CHECK_SECONDS
            rows = await self._rows.all()
            known = vouched_people(rows, people.declared, verifier, self._deps.clock())
            people.replace_people(known, joined_logins(rows, people.declared, verifier))
            self._due = due

    async def admit(self, claims: Mapping[str, Any]) -> tuple[Person, VouchedPerson | None]:
        """Return the person, and the row to store if the person is not declared.

        The caller has verified `claims`. Ends an earlier login's row if this one yields no person, or a declared one.
        Raises `Refused` for an unknown person, and `StoreUnavailable`.
        """
        people, signer, now = self._people, self._deps.signer, self._deps.clock()
        if people is None:
            raise Refused("this gateway accepts no provider's logins")
        own_id = id_from_login(login_from_claims(claims))
        try:
            person = people.admit(claims)
        # A person who lost the last group loses access with this sign-in, not when the earlier row expires.
        except Refused as error:
            if "person" in error.context:
                _log.warning("a sign-in was refused: %s", second_login(error.context))
            await self._end(own_id, but="")
            raise
        tenant = person.tenant
        # A person who changed tenant loses access to the earlier one.
        await self._end(own_id, but=tenant)
        # The person is now declared. The old row would be a second person with separate roles.
        if person.id != own_id or people.declared.find(own_id, tenant) is not None:
            # If the row shows whose login it was, keep it: it is inactive, and joins the earlier requests to the
            # person.
            if people.person_id(own_id, tenant) == own_id:
                await self._rows.end(tenant, own_id, by="", now=now)
            return person, None
        if signer is None:
            return person, None
        lifetime = timedelta(days=self._deps.settings.oidc_days)
        return person, vouch(signer, person, names=claimed_names(claims), now=now, lifetime=lifetime)

    async def _end(self, own_id: str, *, but: str) -> None:
        for row in await self._rows.all():
            if row.person.id == own_id and row.person.tenant != but:
                await self._rows.end(row.person.tenant, own_id, by="", now=self._deps.clock())

    def look_again(self) -> None:
        """Read the store at the next request: a row was written."""
        self._due = 0.0
