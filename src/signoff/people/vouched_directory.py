"""Signs what a login said of an undeclared person, and decides when it counts. Pure."""

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

# What is signed begins with its purpose: no signature of anything else of the gateway's passes for one of a person.
_PURPOSE: Final = "person 1"


class VouchedPerson(FrozenModel):
    """What verified claims said of a person when they signed in."""

    person: Person
    """The person whom the claims make."""
    names: tuple[str, ...] = ()
    """All addresses and user names that the login claimed, verified or not, folded."""
    seen_at: datetime
    """Since when it counts: when they signed in, in UTC."""
    until: datetime
    """Until when it counts, in UTC."""
    key_id: str = ""
    """The id of the gateway's key that signed it."""
    signature: str = ""
    """The gateway's signature over all other fields."""


class VouchedDirectory:
    """Adds to a directory people whom logins vouched for, who are known by their login only.

    `joined` maps tenant and id of an earlier login to the declared person whose login it is now.
    """

    def __init__(
        self, declared: Directory, people: Iterable[Person] = (), joined: Mapping[tuple[str, str], str] | None = None
    ) -> None:
        self.declared = declared
        self.replace_people(people, joined)

    def replace_people(self, people: Iterable[Person], joined: Mapping[tuple[str, str], str] | None = None) -> None:
        """Replaces all vouched people by these."""
        self._vouched = {(person.tenant, person.id): person for person in people}
        self._joined = dict(joined or {})

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """See `Directory`."""
        # Declared people first: no login may stand in the place of one of them.
        return self.declared.find(person_id, tenant) or self._vouched.get((tenant, person_id))

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """See `Directory`; undeclared people stand last."""
        return (*self.declared.all(tenant), *(each for each in self._vouched.values() if tenant in (None, each.tenant)))

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """See `Directory`."""
        found = self.declared.by_identity(channel, identity, tenant)
        if found is not None or channel != OIDC:
            return found
        return self._vouched.get((tenant, id_from_login(identity)))

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        """See `Directory`."""
        # Also for one joined: whose login it was may be one of several entries.
        return self.declared.person_id(self._joined.get((tenant, subject), subject), tenant)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        """See `Directory`; only declared people delegate."""
        return self.declared.delegators(person_id, tenant, now)


def vouch(signer: Signer, person: Person, *, names: Sequence[str], now: datetime, lifetime: timedelta) -> VouchedPerson:
    """Signs what a person's sign-in at `now` said. Raises `NotCanonical`."""
    now = now.astimezone(UTC)
    vouched = VouchedPerson(person=person, names=tuple(names), seen_at=now, until=now + lifetime)
    mark = signer.sign_bytes(_PURPOSE, _body(vouched))
    return replace(vouched, key_id=mark.key_id, signature=mark.signature)


def vouching_problem(vouched: VouchedPerson, declared: Directory, verifier: Verifier, now: datetime) -> str:
    """Returns why a login's word for a person does not count at `now`; "" when it does.

    It counts when the gateway signed it, it has not expired, it makes exactly the person of the login that it names,
    and no declared person is that person, has that login, or one of the names that came with it.
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
        return "not what a login says of anybody"
    # Asked each time and not once when it was signed: who is declared later must not be met twice.
    known = (
        declared.find(person.id, person.tenant),
        declared.by_identity(OIDC, logins[0], person.tenant),
        names.find(vouched.names, person.tenant),
    )
    return "" if not any(known) else "this person is declared"


def vouched_people(
    rows: Iterable[VouchedPerson], declared: Directory, verifier: Verifier, now: datetime
) -> tuple[Person, ...]:
    """Returns the people of those `rows` that count at `now`."""
    names = DeclaredNames(declared)
    return tuple(row.person for row in rows if not _doubt(row, declared, names, verifier, now))


def joined_logins(rows: Iterable[VouchedPerson], declared: Directory, verifier: Verifier) -> dict[tuple[str, str], str]:
    """Maps tenant and id of a login to the declared person whose address or user name its signed row claims, expired or
    not.

    Who asked by such a login, before somebody declared them, must not approve that as who they are now.
    """
    names = DeclaredNames(declared)
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        namesake = names.find(row.names, row.person.tenant)
        if namesake is not None and _is_signed(row, verifier):
            found[row.person.tenant, row.person.id] = namesake.id
    return found


def _is_signed(vouched: VouchedPerson, verifier: Verifier) -> bool:
    # A key that was retired since still counts for what it signed before, and for nothing that says to be later.
    mark = Signature(vouched.key_id, vouched.signature)
    return verifier.check_bytes(_PURPOSE, _body(vouched), mark, at=vouched.seen_at)


def _body(vouched: VouchedPerson) -> bytes:
    # What is left out holds its default: what was signed before a field existed verifies after it does.
    return canonical_json(vouched.model_dump(mode="json", exclude={"key_id", "signature"}, exclude_defaults=True))
