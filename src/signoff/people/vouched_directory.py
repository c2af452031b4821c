"""Signs a login's data about an undeclared person, and decides when it counts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from signoff.contracts.canonical_json import canonical_json
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.keys.signatures import Signature, Signer, Verifier
from signoff.people.addresses import DeclaredNames
from signoff.people.directory import Directory
from signoff.people.login import OIDC, id_from_login
from signoff.people.on_call import find_on_call, has_unread

# Signed data starts with its purpose: no other signature of the gateway can pass for one of a person.
_PURPOSE: Final = "person 1"


class VouchedPerson(FrozenModel):
    """Data from verified claims about a person at sign-in."""

    person: Person
    """The person described by the claims."""
    names: tuple[str, ...] = ()
    """All normalised addresses and user names in the claims, verified or not."""
    seen_at: datetime
    """The time of the sign-in, in UTC. It counts from then on."""
    until: datetime
    """The end of its validity, in UTC."""
    key_id: str = ""
    """The id of the gateway's key that signed it."""
    signature: str = ""
    """The gateway's signature over all other fields."""


class VouchedDirectory:
    """Adds vouched people, known only by their login, to a directory.

    `joined` maps tenant and id of an earlier login to the declared person who now owns it.
    """

    def __init__(
        self, declared: Directory, people: Iterable[Person] = (), joined: Mapping[tuple[str, str], str] | None = None
    ) -> None:
        self.declared = declared
        self.replace_people(people, joined)

    def replace_people(self, people: Iterable[Person], joined: Mapping[tuple[str, str], str] | None = None) -> None:
        self._vouched = {(person.tenant, person.id): person for person in people}
        self._joined = dict(joined or {})

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        # Declared people first: a login must not replace one of them.
        return self.declared.find(person_id, tenant) or self._vouched.get((tenant, person_id))

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """Undeclared people come last."""
        return (*self.declared.all(tenant), *(each for each in self._vouched.values() if tenant in (None, each.tenant)))

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        person = self.declared.by_identity(channel, identity, tenant)
        if person is not None or channel != OIDC:
            return person
        return self._vouched.get((tenant, id_from_login(identity)))

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        # Resolve a joined login too: its declared person may be one of several accounts.
        return self.declared.person_id(self._joined.get((tenant, subject), subject), tenant)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        """Only declared people delegate."""
        return self.declared.delegators(person_id, tenant, now)

    def on_call(self, person_id: str, tenant: str, moment: datetime) -> tuple[str, ...]:
        return find_on_call(self.declared, person_id, tenant, moment)

    def has_unread(self, entries: Iterable[str], tenant: str, moment: datetime) -> bool:
        return has_unread(self.declared, entries, tenant, moment)


def vouch(signer: Signer, person: Person, *, names: Sequence[str], now: datetime, lifetime: timedelta) -> VouchedPerson:
    """Raises `NotCanonical`."""
    now = now.astimezone(UTC)
    vouched = VouchedPerson(person=person, names=tuple(names), seen_at=now, until=now + lifetime)
    mark = signer.sign_bytes(_PURPOSE, _body(vouched))
    return replace(vouched, key_id=mark.key_id, signature=mark.signature)


def vouching_problem(vouched: VouchedPerson, declared: Directory, verifier: Verifier, now: datetime) -> str:
    """Return why a login's data about a person do not count at `now`, or "".

    The gateway must have signed them, they must not have expired, and they must describe exactly the person of the
    login. No declared person may have that id, that login, or one of the names in the claims.
    """
    return _doubt(vouched, declared, DeclaredNames(declared), verifier, now)


def _doubt(vouched: VouchedPerson, declared: Directory, names: DeclaredNames, verifier: Verifier, now: datetime) -> str:
    person = vouched.person
    if not _is_signed(vouched, verifier):
        return "not signed by the gateway"
    if now >= vouched.until:
        return "over"
    logins = person.identities.get(OIDC, ())
    if len(logins) != 1 or person.id != id_from_login(logins[0]) or person.delegations or not person.active:
        return "not in the form of a login's row"
    # Check each time instead of once at signing: a person declared later must not exist twice.
    known = (
        declared.find(person.id, person.tenant),
        declared.by_identity(OIDC, logins[0], person.tenant),
        names.find(vouched.names, person.tenant),
    )
    return "" if not any(known) else "this person is declared"


def vouched_people(
    rows: Iterable[VouchedPerson], declared: Directory, verifier: Verifier, now: datetime
) -> tuple[Person, ...]:
    names = DeclaredNames(declared)
    return tuple(row.person for row in rows if not _doubt(row, declared, names, verifier, now))


def joined_logins(rows: Iterable[VouchedPerson], declared: Directory, verifier: Verifier) -> dict[tuple[str, str], str]:
    """Map tenant and id of a login to the declared person whose name its signed row claims.

    Names are addresses and user names, and expired rows count. A person who made a request with such a login, before
    being declared, must not approve it under the present account.
    """
    names = DeclaredNames(declared)
    joined: dict[tuple[str, str], str] = {}
    for row in rows:
        namesake = names.find(row.names, row.person.tenant)
        if namesake is not None and _is_signed(row, verifier):
            joined[row.person.tenant, row.person.id] = namesake.id
    return joined


def _is_signed(vouched: VouchedPerson, verifier: Verifier) -> bool:
    # A key retired since is valid for earlier signatures, and for nothing with a later time.
    mark = Signature(vouched.key_id, vouched.signature)
    return verifier.check_bytes(_PURPOSE, _body(vouched), mark, at=vouched.seen_at)


def _body(vouched: VouchedPerson) -> bytes:
    # Fields at their default are left out, so that signatures from before a field existed stay valid.
    return canonical_json(vouched.model_dump(mode="json", exclude={"key_id", "signature"}, exclude_defaults=True))
