"""People who sign in by a provider's word alone: written down with the gateway's signature, and known by it."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.registry.claims import ClaimsDirectory, ClaimsMapping, login_of, verified_email
from signoff.registry.people_file import CHECK_SECONDS
from signoff.registry.people_vouched import Vouched, id_of, vouch, vouched_people
from signoff.store.people import VouchedPeople


def knowing_logins(deps: GatewayDeps) -> GatewayDeps:
    """`deps` whose directory knows those, too, for whom a provider vouches, where one is named."""
    settings = deps.settings
    if settings.oidc_issuer is None or isinstance(deps.people, ClaimsDirectory):
        return deps
    mapping = ClaimsMapping(groups_claim=settings.oidc_groups_claim, roles=settings.oidc_roles)
    return dataclasses.replace(deps, people=ClaimsDirectory(deps.people, mapping))


class Logins:
    """Those for whom logins vouched, as the store has them; looked at once a second at most.

    A gateway without keys, which only development allows, signs nothing: there such people are known to it alone.
    """

    def __init__(self, deps: GatewayDeps, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._deps = deps
        self._people = deps.people if isinstance(deps.people, ClaimsDirectory) else None
        self._rows = VouchedPeople(deps.store)
        self._clock = clock
        self._looking = asyncio.Lock()
        self._due = 0.0

    async def look(self) -> None:
        """Know whom the store knows now. Raises `StoreUnavailable`."""
        people, signer = self._people, self._deps.signer
        if people is None or signer is None:
            return
        # Every request comes by here: one reads the rows, the others wait and find it done.
        async with self._looking:
            if self._clock() < self._due:
                return
            # Taken before the reading and kept only if that went well: a store that failed is asked again at once.
            due = self._clock() + CHECK_SECONDS
            rows = await self._rows.all()
            people.hold(vouched_people(rows, people.declared, signer.verifier(), self._deps.clock()))
            self._due = due

    async def admit(self, claims: Mapping[str, Any]) -> tuple[Person, Vouched | None]:
        """Whom verified claims are about, and what is to be written of them if nobody declared them.

        What an earlier login said of them ends where this one makes nobody, or somebody declared, of them. Raises
        `Refused` for whom nobody knows, `StoreUnavailable`.
        """
        people, signer, now = self._people, self._deps.signer, self._deps.clock()
        if people is None:
            raise Refused("nobody is known by a login here")
        tenant, own_id = people.mapping.tenant, id_of(login_of(claims))
        try:
            person = people.admit(claims)
        # Who lost their last group is out by this sign-in, not when the earlier one's word runs out.
        except Refused:
            await self._rows.end(tenant, own_id, by="", now=now)
            raise
        # Somebody declares this person by now: a row left standing would be a second one with roles of its own.
        if person.id != own_id or people.declared.find(own_id, tenant) is not None:
            await self._rows.end(tenant, own_id, by="", now=now)
            return person, None
        if signer is None:
            return person, None
        lifetime = timedelta(days=self._deps.settings.oidc_days)
        return person, vouch(signer, person, email=verified_email(claims), now=now, lifetime=lifetime)

    def look_again(self) -> None:
        """Look at the store at the next request, whatever the time: something was written."""
        self._due = 0.0
