"""Registers passkeys of people, in their own sign-in."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from signoff.approvals.audit_events import SHORT, admin_entry
from signoff.approvals.notifications import Notice
from signoff.audit.log import entry_writer
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.decision import Passkey, PasskeyAssertion
from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.gateway.deps import GatewayDeps
from signoff.keys.passkeys import (
    assertion_options,
    assertion_problem,
    counter_of,
    creation_options,
    further_challenge,
    is_registered,
    registration_challenge,
    relying_party,
    sign_passkey,
    verify_creation,
)
from signoff.store.messages.notices import Notices
from signoff.store.questions.passkeys import AddProblem, KnownPasskey, Passkeys
from signoff.store.store import Store

MOST: Final = 10
"""Passkeys of one person."""
_WHY: Final[Mapping[AddProblem, str]] = {
    "used": "this registration was used before, or took longer than five minutes; begin again",
    "old": "a further passkey needs one of your earlier ones; begin again",
    "cloned": "the counter of your earlier passkey did not grow: a copy of it may be in use; inform an administrator",
    "known": "this passkey is registered already",
}
_log = logging.getLogger(__name__)


def warn_of_copy(store: Store, person: Person) -> None:
    """Warn the operator that a copy of a person's passkey may be in use."""
    _log.warning("a copy of a passkey of %r may be in use: its counter did not grow", person.id)
    store.count_refusal("forged")


class RegistrationOptions(NamedTuple):
    """A registration that a browser may finish."""

    nonce: str
    create: dict[str, Any]
    """The options for `navigator.credentials.create`, with bytes in base64url."""
    earlier: dict[str, Any] | None
    """The options for `navigator.credentials.get` with an earlier passkey. `None` for a first one."""


class PasskeyRegistration:
    """Registers passkeys. The caller has checked the sign-in. All methods raise `StoreUnavailable`."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._deps = deps
        self._passkeys = Passkeys(deps.store)
        self._party = relying_party(deps.settings.public_url)

    @property
    def origin(self) -> str:
        """The origin of the pages on which passkeys work."""
        return self._party.origin

    async def list_of(self, person: Person) -> list[KnownPasskey]:
        return await self._passkeys.list_of(person.tenant, person.id)

    async def begin(self, person: Person) -> RegistrationOptions:
        """Raises `Refused` without signing keys, and above the limit."""
        known = await self.list_of(person)
        if self._deps.signer is None:
            raise Refused("this gateway has no keys: make them with `signoff keys create`", code="unavailable")
        if len(known) >= MOST:
            raise Refused(f"a person has at most {MOST} passkeys", code="not_allowed")
        tenant, credentials = person.tenant, tuple(each.passkey.credential for each in known)
        nonce = await self._passkeys.make_nonce(tenant, person.id)
        user = (tenant, person.id, person.name)
        created = registration_challenge(tenant, person.id, nonce)
        permitted = further_challenge(tenant, person.id, nonce)
        return RegistrationOptions(
            nonce,
            creation_options(self._party, created, user=user, known=credentials),
            assertion_options(self._party, permitted, credentials) if credentials else None,
        )

    async def finish(
        self, person: Person, nonce: str, created: Mapping[str, Any], earlier: PasskeyAssertion | None
    ) -> None:
        """Add the passkey that a browser created. Records the attempt. Raises `Refused`."""
        deps, now = self._deps, self._deps.clock()
        try:
            await self._add(person, nonce, created, earlier)
        except Refused as error:
            entry = admin_entry(person.tenant, "passkey refused", person.id, now, kind="attempt", reason=error.message)
            await deps.attempts.note(deps.store, entry, "not_allowed")
            raise

    async def _add(
        self, person: Person, nonce: str, created: Mapping[str, Any], earlier: PasskeyAssertion | None
    ) -> None:
        deps, now, tenant = self._deps, self._deps.clock(), person.tenant
        if deps.signer is None:
            raise Refused("this gateway has no keys: make them with `signoff keys create`", code="unavailable")
        known = await self.list_of(person)
        further = further_challenge(tenant, person.id, nonce)
        by = None if earlier is None else self._find_earlier(known, earlier, further)
        new = verify_creation(created, self._party, registration_challenge(tenant, person.id, nonce))
        passkey = Passkey(
            credential=new.credential,
            tenant=tenant,
            person=person.id,
            public_key=new.public_key,
            rp_id=self._party.id,
            origin=self._party.origin,
            added_at=now,
            added_by=person.id,
        )
        name = sha256_hex(new.credential)[:SHORT]
        entry = admin_entry(tenant, "passkey added", person.id, now, passkey=name, number=len(known) + 1)
        # With the passkey, so that a crash cannot lose it. The dispatcher sends it on all channels of the person.
        notice = Notice(kind="passkey", about=f"{tenant}.{sha256_hex(new.credential)}", at=now)
        tell = await Notices(deps.store).open_writer(notice, tenant, person.id)
        write = entry_writer([entry])

        def also(connection: Connection) -> None:
            if deps.catalog.channels.declared:
                tell(connection)
            write(connection)

        problem = await self._passkeys.add(sign_passkey(passkey, deps.signer), new.counter, nonce, by=by, also=also)
        if problem == "cloned":
            warn_of_copy(deps.store, person)
        if problem:
            raise Refused(_WHY[problem], code="not_allowed")

    def _find_earlier(
        self, known: Sequence[KnownPasskey], earlier: PasskeyAssertion, challenge: bytes
    ) -> tuple[Passkey, int]:
        """Return the earlier passkey that permits a further one, with its new counter. Raises `Refused`."""
        verifier = self._deps.verifier()
        own = (each.passkey for each in known if is_registered(each.passkey, verifier))
        passkey = next((each for each in own if each.credential == earlier.credential), None)
        problem = "it is none of yours" if passkey is None else assertion_problem(earlier, passkey, challenge)
        if passkey is None or problem:
            raise Refused(f"your earlier passkey did not permit this one: {problem}", code="not_allowed")
        return passkey, counter_of(earlier)
