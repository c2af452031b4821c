"""Finds people by id. In the development profile, requests name a person without proof."""

from signoff.contracts.errors import NotFound
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.people.directory import Directory


def known_person(people: Directory, name: str, tenant: str = DEFAULT_TENANT) -> Person:
    """Return an active person. Raises `NotFound` that suggests the nearest ids."""
    person = people.find(name, tenant)
    if person is None or not person.active:
        near = did_you_mean(name, [each.id for each in active_people(people, tenant)])
        raise NotFound(f"there is no person {quote_name(name)}{near}")
    return person


def active_people(people: Directory, tenant: str = DEFAULT_TENANT) -> tuple[Person, ...]:
    """In order of declaration."""
    return tuple(person for person in people.all(tenant) if person.active)


def display_name(people: Directory, subject: str, tenant: str = DEFAULT_TENANT) -> str:
    """Return the id if there is no name or no such person."""
    person = people.find(subject, tenant)
    return (person.name or person.id) if person is not None else subject
