"""The directory: who exists, in which tenant, with which roles."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.ids import ID_PATTERN, is_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person, Principal
from signoff.registry.nearest import did_you_mean

DEVELOPMENT_PEOPLE: Final = (
    Person(id="guest", name="Guest", tier="standard"),
    Person(id="approver", name="Approver", tier="standard", roles=("approvers",)),
)
"""Who exists in the development profile before anybody was declared."""


class Directory:
    """People by tenant and id; immutable. Raises `ConfigError` for a duplicate or an id that is not one."""

    __slots__ = ("_people",)

    def __init__(self, people: Iterable[Person]) -> None:
        known: dict[tuple[str, str], Person] = {}
        for person in people:
            _check(person)
            if (person.tenant, person.id) in known:
                raise ConfigError(
                    f"person `{person.id}` is declared twice in tenant `{person.tenant}`; keep one",
                    person=person.id,
                    field="id",
                    value=person.id,
                )
            known[(person.tenant, person.id)] = person
        self._people = known

    def find(self, person_id: str, tenant: str = DEFAULT_TENANT) -> Person | None:
        """The person of exactly this id in this tenant, active or not, or None."""
        return self._people.get((tenant, person_id))

    def all(self, tenant: str | None = None) -> tuple[Person, ...]:
        """Everybody (of one tenant), in order of declaration."""
        return tuple(person for person in self._people.values() if tenant in (None, person.tenant))


def development_directory(people: Iterable[Person] = ()) -> Directory:
    """`people` and those built-in ones (`guest`, `approver`) whose ids they do not use themselves."""
    declared = tuple(people)
    own = {person.id for person in declared if person.tenant == DEFAULT_TENANT}
    return Directory((*(person for person in DEVELOPMENT_PEOPLE if person.id not in own), *declared))


def person_from(data: Mapping[str, Any]) -> Person:
    """A person from plain data. Raises `ConfigError` with `field` for an unknown key or a wrong value."""
    for key in data:
        if key not in Person.model_fields:
            allowed = ", ".join(f"`{name}`" for name in Person.model_fields)
            near = did_you_mean(key, Person.model_fields)
            raise ConfigError(f"unknown key `{key}` of a person; allowed: {allowed}{near}", field=key, value=data[key])
    try:
        person = Person.model_validate(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise ConfigError(f"`{name}` of a person: {first['msg'].lower()}", field=name, value=data.get(name)) from None
    _check(person)
    return person


def principal_of(person: Person) -> Principal:
    """The person as the one on whose behalf a turn runs."""
    return Principal(user=person.id, name=person.name, tier=person.tier, roles=person.roles, locale=person.locale)


def turn_context(person: Person, given: Mapping[str, Any]) -> dict[str, Any]:
    """The extra context of a turn: `given` by whoever starts it, and what the directory knows of the person.

    Raises `Refused` (`malformed`) when `given` says something of the user: that only the directory may.
    """
    claimed = sorted(name for name in given if name.partition(".")[0] == "user")
    if claimed:
        named = ", ".join(f"`{name}`" for name in claimed)
        raise Refused(f"{named} cannot be given: what is known of a user comes from the directory", code="malformed")
    return {**given, **{f"user.{name}": value for name, value in person.attributes.items()}}


def _check(person: Person) -> None:
    for field, value in (("id", person.id), ("tenant", person.tenant), *(("roles", role) for role in person.roles)):
        if not is_id(value):
            raise ConfigError(
                f"`{field}` of person `{person.id}` is `{value}`, which does not match `{ID_PATTERN[:-2]}$`",
                person=person.id,
                field=field,
                value=value,
            )
