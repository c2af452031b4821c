"""Normalises addresses and names in a login's claims. Pure."""

import functools
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from signoff.contracts.errors import Refused
from signoff.contracts.limits import LOGIN_NAME_CHARS, LOGIN_NAMES
from signoff.contracts.person import Person
from signoff.formats.mail_address import plain_address
from signoff.people.directory import EMAIL, Directory

CLAIMS: Final = ("email", "preferred_username", "upn", "unique_name", "emails")
"""Claims with addresses and user names. The first two are from OpenID Connect Core 1.0."""

_ADDRESS_CLAIMS: Final = ("email", "emails")


def claimed_names(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Include unverified names. Raises `Refused` (`malformed`) for more than `LOGIN_NAMES`."""
    given = [each for claim in CLAIMS for each in _texts(claims.get(claim))]
    # Refuse instead of truncating: the part cut off could identify the person.
    if len(given) > LOGIN_NAMES:
        raise Refused(f"the provider's answer names more than {LOGIN_NAMES} addresses", "malformed")
    return tuple(dict.fromkeys(name for each in given if (name := normalise_address(each))))


def has_odd_address(claims: Mapping[str, Any]) -> bool:
    """Return whether an address has no normal form. A user name with an inner `@` counts as an address."""
    addresses = [each for claim in _ADDRESS_CLAIMS for each in _texts(claims.get(claim))]
    names = [each for claim in CLAIMS if claim not in _ADDRESS_CLAIMS for each in _texts(claims.get(claim))]
    named = [each for each in names if "@" in unicodedata.normalize("NFKC", each[:LOGIN_NAME_CHARS]).strip()[1:]]
    return any(each.strip() and not plain_address(each) for each in (*addresses, *named))


@functools.lru_cache(maxsize=65_536)
def normalise_address(name: str) -> str:
    """Return NFKC, case-folded, without `+tag`, invisible marks and a final dot.

    This is coarser than the equality of addresses: the result is a hint at a person's identity, never a proof.
    """
    plain = unicodedata.normalize("NFKC", name[:LOGIN_NAME_CHARS]).casefold()
    # Folding may leave text that NFKC would compose. A person cannot see marks without a width.
    plain = unicodedata.normalize("NFKC", plain)
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Cc")).strip()
    # `Ana <ana@example.com>`, `mailto:ana@example.com` and `"ana"@example.com` are the same address to email programs.
    plain = plain.rpartition("<")[2].removesuffix(">").removeprefix("mailto:")
    local, at, domain = plain.rpartition("@")
    if not at:
        return plain
    local = local.replace('"', "").replace("\\", "")
    # A local part that starts with `+` has nothing before its tag and is kept whole.
    bare = local.partition("+")[0] or local
    return f"{bare}@{_domain(domain)}"


class DeclaredNames:
    """Finds the declared person, active or not, whose id or address a login claims.

    It is a snapshot that does not follow changes.
    """

    def __init__(self, declared: Directory) -> None:
        self._declared = declared
        self._tenants: dict[str, dict[str, Person]] = {}

    def find(self, names: Iterable[str], tenant: str) -> Person | None:
        """`names` are normalised."""
        if tenant not in self._tenants:
            self._tenants[tenant] = _names_of(self._declared.all(tenant))
        people = self._tenants[tenant]
        return next((people[name] for name in names if name in people), None)


def _names_of(people: Iterable[Person]) -> dict[str, Person]:
    by_name: dict[str, Person] = {}
    for person in people:
        for name in (person.id, *person.identities.get(EMAIL, ())):
            by_name.setdefault(normalise_address(name), person)
    return by_name


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _domain(domain: str) -> str:
    # The ideographic full stop divides a domain like a full stop (UTS 46).
    domain = domain.replace("\u3002", ".").strip().rstrip(".")
    # The two notations of an international name (RFC 5890) are the same name.
    try:
        return domain.encode("ascii").decode("idna")
    except UnicodeError:
        return domain
