"""Defines the directory of people, with their tenants, roles and delegations."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol, runtime_checkable

from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person, Principal
from signoff.formats.mail_address import plain_address
from signoff.formats.nearest_name import did_you_mean
from signoff.formats.replace import replace
from signoff.people.login import OIDC, id_from_login

EMAIL: Final = "email"
"""The channel whose identities are email addresses."""

DEVELOPMENT_PEOPLE: Final = (
    Person(id="guest", name="Guest", tier="standard"),
    Person(id="approver", name="Approver", tier="standard", roles=("approvers",)),
)
"""The people of the development profile before any are declared."""
_BUILT_IN: Final = {(person.tenant, person.id): person for person in DEVELOPMENT_PEOPLE}


@runtime_checkable
class Directory(Protocol):
    """Finds people by tenant, at the time of each decision, from memory.

    Raises `Unavailable` if it cannot know at this time. Then nothing is decided.
    """

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """Return the person with exactly this id in this tenant, active or not, or `None`."""

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """Return all people, or one tenant's, in order of declaration."""

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """Return the person, active or not, with this identity on the channel, or `None`."""

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        """Return the id of the person behind `subject`, the id of an account or a login.

        Quorum and separation of duties use it. An unknown `subject` is returned unchanged.
        """

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        """Return this person's active delegators at `now` (aware), in order of declaration."""


class FixedDirectory:
    """Holds people who never change.

    Raises `ConfigError` with `person`, `index`, `field` and `value` for invalid people.
    """

    __slots__ = ("_deputies", "_humans", "_identities", "_people")

    def __init__(self, people: Iterable[Person]) -> None:
        declared = tuple(_with_normal_addresses(person) for person in people)
        self._people = _by_id(declared)
        self._identities = _by_identity(declared)
        self._humans = _by_human(declared, self._people)
        self._deputies = _by_delegate(declared, self._people)

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """Return the person with exactly this id in this tenant, active or not, or `None`."""
        return self._people.get((tenant, person_id))

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """Return all people, or one tenant's, in order of declaration."""
        return tuple(person for person in self._people.values() if tenant in (None, person.tenant))

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """Return the person with this identity on the channel, active or not, or `None`."""
        return self._identities.get((tenant, channel, normalise_identity(channel, identity)))

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        """Return the id of the person behind an account or login, unchanged if unknown."""
        return self._humans.get((tenant, subject), subject)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        """Return the active people that delegate to this person at `now`, as declared."""
        people = self._deputies.get((tenant, person_id), ())
        return tuple(
            person
            for person in people
            if person.active and any(each.to == person_id and now < each.until for each in person.delegations)
        )


class DevelopmentDirectory:
    """Adds the built-in people (`guest`, `approver`) to another directory.

    Leaves out those whose ids that directory uses.
    """

    __slots__ = ("declared",)

    def __init__(self, declared: Directory) -> None:
        self.declared = declared

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        return self.declared.find(person_id, tenant) or _BUILT_IN.get((tenant, person_id))

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """The built-in people come first."""
        built_in = (each for each in DEVELOPMENT_PEOPLE if tenant in (None, each.tenant))
        unused = (each for each in built_in if self.declared.find(each.id, each.tenant) is None)
        return (*unused, *self.declared.all(tenant))

    def by_identity(self, channel: str, identity: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """The built-in people have no identities."""
        return self.declared.by_identity(channel, identity, tenant)

    def person_id(self, subject: str, tenant: str = DEFAULT_TENANT) -> str:
        return self.declared.person_id(subject, tenant)

    def delegators(self, person_id: str, tenant: str, now: datetime) -> tuple[Person, ...]:
        """The built-in people delegate nothing."""
        return self.declared.delegators(person_id, tenant, now)


def development_directory(people: Iterable[Person] = ()) -> DevelopmentDirectory:
    return DevelopmentDirectory(FixedDirectory(people))


def declared_people(directory: Directory) -> Directory:
    """Leave out the built-in people of the development profile."""
    return directory.declared if isinstance(directory, DevelopmentDirectory) else directory


def normalise_identity(channel: str, identity: str) -> str:
    """Normalise an email address by `plain_address`, which may return ""."""
    return plain_address(identity) if channel == EMAIL else identity


def principal_of(person: Person, people: Directory) -> Principal:
    human = people.person_id(person.id, person.tenant)
    return Principal(
        user=person.id,
        person_id="" if human == person.id else human,
        name=person.name,
        tier=person.tier,
        roles=person.roles,
        locale=person.locale or "en",
    )


def humans_of(principal: Principal, people: Directory, tenant: str) -> frozenset[str]:
    """Return all ids of the person behind a principal, at the time of the request and now.

    An account that has left the directory since still belongs to them.
    """
    return frozenset(
        (principal.human, people.person_id(principal.user, tenant), people.person_id(principal.human, tenant))
    )


def turn_context(person: Person, given: Mapping[str, Any]) -> dict[str, Any]:
    """Join the context by the turn's starter and the person's attributes.

    Raises `Refused` (`malformed`) if `given` contains user data, which only the directory may set.
    """
    user_fields = sorted(name for name in given if name.partition(".")[0] == "user")
    # Refuse instead of ignoring it: the caller relies on it, and rules about users must not depend on callers.
    if user_fields:
        named = ", ".join(f"`{name}`" for name in user_fields)
        raise Refused(f"{named} cannot be given: user data comes from the directory", code="malformed")
    return {**given, **{f"user.{name}": value for name, value in person.attributes.items()}}


def _with_normal_addresses(person: Person) -> Person:
    # Keep an address without a normal form, for the error that names it.
    addresses = person.identities.get(EMAIL, ())
    normal = tuple(dict.fromkeys(plain_address(each) or each for each in addresses))
    if normal == addresses:
        return person
    return replace(person, identities={**person.identities, EMAIL: normal})


def _by_id(people: tuple[Person, ...]) -> dict[tuple[str, str], Person]:
    known: dict[tuple[str, str], Person] = {}
    for index, person in enumerate(people):
        _check_ids(index, person)
        if (person.tenant, person.id) in known:
            why = f"is declared twice in tenant `{person.tenant}`; keep one"
            raise _wrong(index, person, "id", person.id, why)
        known[(person.tenant, person.id)] = person
    return known


def _by_identity(people: tuple[Person, ...]) -> dict[tuple[str, str, str], Person]:
    known: dict[tuple[str, str, str], Person] = {}
    for index, person in enumerate(people):
        for channel, identities in person.identities.items():
            for at, identity in enumerate(identities):
                field = f"identities.{channel}.{at}"
                _check_identity(index, person, channel, identity, field)
                key = (person.tenant, channel, normalise_identity(channel, identity))
                # With an identity shared by two people, it would be unclear which of them decided.
                other = known.setdefault(key, person)
                if other is not person:
                    why = f"has the {channel} identity `{identity}`, which is that of `{other.id}`; keep one"
                    raise _wrong(index, person, field, identity, why)
    return known


def _by_human(people: tuple[Person, ...], known: Mapping[tuple[str, str], Person]) -> dict[tuple[str, str], str]:
    humans: dict[tuple[str, str], str] = {}
    for index, person in enumerate(people):
        first = known.get((person.tenant, person.person_id or person.id))
        if first is None:
            near = did_you_mean(person.person_id, [each for tenant, each in known if tenant == person.tenant])
            why = f"has the `person_id` `{person.person_id}`, who is not declared in tenant `{person.tenant}`{near}"
            raise _wrong(index, person, "person_id", person.person_id, why)
        # Only one hop: with chains or circles, the owner of an account would not be obvious.
        if first.person_id not in ("", first.id):
            why = f"has the `person_id` `{first.id}`, which is itself an entry of `{first.person_id}`; name that one"
            raise _wrong(index, person, "person_id", person.person_id, why)
        humans[(person.tenant, person.id)] = first.id
    for person in people:
        # Requests made with a login before it was declared belong to the same person.
        for login in person.identities.get(OIDC, ()):
            humans.setdefault((person.tenant, id_from_login(login)), humans[(person.tenant, person.id)])
    return humans


def _by_delegate(
    people: tuple[Person, ...], known: Mapping[tuple[str, str], Person]
) -> dict[tuple[str, str], tuple[Person, ...]]:
    delegates: dict[tuple[str, str], tuple[Person, ...]] = {}
    for index, person in enumerate(people):
        for at, delegation in enumerate(person.delegations):
            field = f"delegations.{at}.to"
            if delegation.to == person.id:
                raise _wrong(index, person, field, delegation.to, "delegates to themselves; name somebody else")
            if (person.tenant, delegation.to) not in known:
                near = did_you_mean(delegation.to, [each for tenant, each in known if tenant == person.tenant])
                why = f"delegates to `{delegation.to}`, who is not declared in tenant `{person.tenant}`{near}"
                raise _wrong(index, person, field, delegation.to, why)
            # It is compared with an aware time at each decision, and a naive one would raise a TypeError.
            if delegation.until.tzinfo is None:
                why = f"delegates to `{delegation.to}` until a time without a zone; end it with `Z` for UTC"
                raise _wrong(index, person, f"delegations.{at}.until", delegation.until, why)
        # List each delegate once: a person may delegate to the same one for several periods, each checked when it
        # counts.
        for to in dict.fromkeys(each.to for each in person.delegations):
            delegates[(person.tenant, to)] = (*delegates.get((person.tenant, to), ()), person)
    return delegates


def _check_ids(index: int, person: Person) -> None:
    named = (("id", person.id), ("tenant", person.tenant))
    # Each becomes part of an id or of an approver entry (`role:x`), where a `:` would be read as the entry's.
    listed = ((f"roles.{at}", role) for at, role in enumerate(person.roles))
    channels = ((f"identities.{channel}", channel) for channel in person.identities)
    for field, value in (*named, *listed, *channels):
        if not is_id(value):
            key = field.partition(".")[0]
            message = f"`{key}` of person `{person.id}` is `{value}`, which does not match `{ID_PATTERN[:-2]}$`"
            raise ConfigError(message, person=person.id, index=index, field=field, value=value)


def _check_identity(index: int, person: Person, channel: str, identity: str, field: str) -> None:
    # Such an identity would silently match no one: identities from channels have no blanks around them.
    if not identity or identity != identity.strip() or not identity.isprintable():
        raise _wrong(index, person, field, identity, f"has a {channel} identity that is empty or has blanks around it")
    if channel == EMAIL and not plain_address(identity):
        why = f"has the email identity `{identity}`, which is no plain address such as `ana@example.com`"
        raise _wrong(index, person, field, identity, why)


def _wrong(index: int, person: Person, field: str, value: object, why: str) -> ConfigError:
    return ConfigError(f"person `{person.id}` {why}", person=person.id, index=index, field=field, value=value)
