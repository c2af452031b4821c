"""Normalises the addresses and names that a login claims, and finds the declared people who have them. Pure."""

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
"""Claims by which providers tell addresses and user names: OpenID Connect Core 1.0 has the first two, others add."""

_ADDRESS_CLAIMS: Final = ("email", "emails")


def claimed_names(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns every address and user name in `claims`, verified or not, as `folded` spells it, each once.

    Raises `Refused` (`malformed`) for more than `LOGIN_NAMES`.
    """
    given = [each for claim in CLAIMS for each in _texts(claims.get(claim))]
    # Refused, not cut: what is cut off could be the one that tells who this is.
    if len(given) > LOGIN_NAMES:
        raise Refused(f"the provider's answer names more than {LOGIN_NAMES} addresses", "malformed")
    return tuple(dict.fromkeys(name for each in given if (name := normalise_address(each))))


def has_odd_address(claims: Mapping[str, Any]) -> bool:
    """Return whether `claims` have an address without a normal form; a user name with an `@` within is one too."""
    addresses = [each for claim in _ADDRESS_CLAIMS for each in _texts(claims.get(claim))]
    names = [each for claim in CLAIMS if claim not in _ADDRESS_CLAIMS for each in _texts(claims.get(claim))]
    named = [each for each in names if "@" in unicodedata.normalize("NFKC", each[:LOGIN_NAME_CHARS]).strip()[1:]]
    return any(each.strip() and not plain_address(each) for each in (*addresses, *named))


@functools.lru_cache(maxsize=65_536)
def normalise_address(name: str) -> str:
    """Normalises an address or user name: NFKC, case-folded, without `+tag`, invisible marks and a final dot.

    Coarser than the equality of two addresses: the result hints at who somebody may be, and never proves it.
    """
    plain = unicodedata.normalize("NFKC", name[:LOGIN_NAME_CHARS]).casefold()
    # Folding may leave what NFKC would compose. Marks without a width are no difference that a person can see.
    plain = unicodedata.normalize("NFKC", plain)
    plain = "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Cc")).strip()
    # `Ana <ana@example.com>`, `mailto:ana@example.com` and `"ana"@example.com` are one address to mail programs.
    plain = plain.rpartition("<")[2].removesuffix(">").removeprefix("mailto:")
    local, at, domain = plain.rpartition("@")
    if not at:
        return plain
    local = local.replace('"', "").replace("\\", "")
    # A local part that begins with `+` has nothing before its tag, and is one by itself.
    bare = local.partition("+")[0] or local
    return f"{bare}@{_domain(domain)}"


class DeclaredNames:
    """Finds the declared person, active or not, whose id or address a login claims. A snapshot: it follows no
    change.
    """

    def __init__(self, declared: Directory) -> None:
        self._declared = declared
        self._tenants: dict[str, dict[str, Person]] = {}

    def find(self, names: Iterable[str], tenant: str) -> Person | None:
        """Returns the first of the tenant's declared people who has one of the folded `names`, or None."""
        if tenant not in self._tenants:
            self._tenants[tenant] = _names_of(self._declared.all(tenant))
        known = self._tenants[tenant]
        return next((known[name] for name in names if name in known), None)


def _names_of(people: Iterable[Person]) -> dict[str, Person]:
    found: dict[str, Person] = {}
    for person in people:
        for name in (person.id, *person.identities.get(EMAIL, ())):
            found.setdefault(normalise_address(name), person)
    return found


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _domain(domain: str) -> str:
    # The ideographic full stop divides a domain as a full stop does (UTS 46).
    domain = domain.replace("\u3002", ".").strip().rstrip(".")
    # The two ways of writing one international name (RFC 5890) are one name.
    try:
        return domain.encode("ascii").decode("idna")
    except UnicodeError:
        return domain
