"""Converts an OpenID Connect provider's claims to people: whose a login is, and people whom nobody declared."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.ids import is_id
from signoff.contracts.names import DEFAULT_TENANT
from signoff.contracts.person import Person
from signoff.people.addresses import DeclaredNames, claimed_names, has_odd_address
from signoff.people.directory import EMAIL, Directory, normalise_identity
from signoff.people.login import OIDC, id_from_login
from signoff.people.vouched_directory import VouchedDirectory

NAME_CHARS: Final = 200
# OpenID Connect Core 1.0, section 2: `sub` is at most 255 ASCII characters.
SUBJECT_CHARS: Final = 255
_UNKNOWN: Final = "nobody here is known by this login; ask whoever keeps the list of people"
_NO_TENANT: Final = "this login names no tenant that is known here; ask whoever keeps your logins"

_ODD_ADDRESS: Final = "this login has an email address not of the form `ana@example.com`; ask whoever keeps your logins"


class ClaimsMapping(BaseModel):
    """Maps a provider's claims to people. Raises `ConfigError`.

    Whoever is in none of the mapped groups is nobody: with an empty mapping, which is the default, only declared people
    can sign in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups_claim: str = "groups"
    """The claim that lists a person's groups."""
    roles: Mapping[str, tuple[str, ...]] = {}
    """The roles that each group gives."""
    tier: str = "standard"
    """The tier of people whom claims make."""
    tenant_claim: str = ""
    """The claim that names a person's tenant; without one everybody is of the tenant `main`."""
    tenants: Mapping[str, str] = {}
    """The tenant that each value of the claim means, and no other value counts; empty: values are tenants' names."""

    def model_post_init(self, context: Any) -> None:
        """Refuses roles and tenants that are no ids."""
        for value in (*self.tenants.values(), *(role for roles in self.roles.values() for role in roles)):
            if not is_id(value):
                raise ConfigError(f"`{value}` can be neither a role nor a tenant", field="roles", value=value)


class ClaimsDirectory(VouchedDirectory):
    """Admits people whom a provider vouches for. The declaration decides who is declared, whatever the claims are."""

    def __init__(self, declared: Directory, mapping: ClaimsMapping | None = None) -> None:
        super().__init__(declared)
        self.mapping = mapping or ClaimsMapping()

    def admit(self, claims: Mapping[str, Any]) -> Person:
        """Returns the active person whom verified claims (of an ID token or of the userinfo endpoint) are about.

        Raises `Refused` (`not_allowed`) for everybody else, with a sentence that names nobody: strangers must not find
        out who is declared. Its context has `login`, and `person` where a declared person has a name that the login
        claims.
        """
        own_id = id_from_login(login_from_claims(claims))
        # Forgotten before anything else is known, in every tenant: who lost their groups or went over to another tenant
        # must not keep the roles of an earlier login.
        for place in [each for each in self._vouched if each[1] == own_id]:
            del self._vouched[place]
        tenant = self._find_tenant(claims)
        # Declared people first: a group that is mapped too widely gives none of them more than their declaration.
        person = self._find_declared(claims, tenant) or self._make_person(claims, tenant)
        if person is None or not person.active:
            raise Refused(_UNKNOWN, "not_allowed", login=login_from_claims(claims))
        return person

    def _find_tenant(self, claims: Mapping[str, Any]) -> str:
        """Finds the tenant whose people alone this login may be of. Raises `Refused` where the claims name none."""
        mapping = self.mapping
        if not mapping.tenant_claim:
            return DEFAULT_TENANT
        named = claims.get(mapping.tenant_claim)
        # Of a list none is taken, not even where it holds one alone: which of several it is nobody here may choose.
        if not isinstance(named, str) or not named:
            raise Refused(_NO_TENANT, "not_allowed", login=login_from_claims(claims))
        known = {DEFAULT_TENANT, *(person.tenant for person in self.declared.all())}
        # Only a tenant that is known here: a provider that lets people name their own must make no new ones.
        tenant = mapping.tenants.get(named) if mapping.tenants else named if named in known else None
        if tenant is None:
            raise Refused(_NO_TENANT, "not_allowed", login=login_from_claims(claims))
        return tenant

    def _make_person(self, claims: Mapping[str, Any], tenant: str) -> Person | None:
        """Makes the person of these claims in their present state; None once they left the groups.

        Raises `Refused` for claims of a name, verified or not, that somebody declared has.
        """
        own_id = id_from_login(login_from_claims(claims))
        made = person_from_claims(claims, self.mapping, tenant)
        namesake = DeclaredNames(self.declared).find(claimed_names(claims), tenant)
        # As another person, who is declared could be two of a quorum by themselves, or approve what they asked for.
        if namesake is not None:
            raise Refused(_UNKNOWN, "not_allowed", login=login_from_claims(claims), person=namesake.id)
        if made is not None and has_odd_address(claims):
            # Another spelling of an address would pass by the search for a namesake.
            raise Refused(_ODD_ADDRESS, "malformed")
        if made is not None:
            self._vouched[(tenant, own_id)] = made
        return self.find(own_id, tenant)

    def _find_declared(self, claims: Mapping[str, Any], tenant: str) -> Person | None:
        """Finds the declared person of this login, else of its verified e-mail address."""
        login = login_from_claims(claims)
        known = self.declared.by_identity(OIDC, login, tenant)
        address = verified_email(claims)
        if known is not None or not address:
            return known
        known = self.declared.by_identity(EMAIL, address, tenant)
        issuer = f"{claims['iss']}#"
        # Addresses are given to other people one day; a login that was written down is not.
        elsewhere = known is not None and any(each.startswith(issuer) for each in known.identities.get(OIDC, ()))
        return None if elsewhere else known


def login_from_claims(claims: Mapping[str, Any]) -> str:
    """Returns the identity `ISSUER#SUBJECT` of verified claims. Raises `Refused` (`malformed`) without these two."""
    # OpenID Connect Core 1.0, section 5.7: these two together, and nothing else, name a person for good. An issuer has
    # no fragment (section 2), so that `#` divides them in one way only.
    issuer, subject = claims.get("iss"), claims.get("sub")
    if not isinstance(issuer, str) or not isinstance(subject, str) or not issuer or "#" in issuer:
        raise Refused("the provider's answer does not say who signed in", "malformed")
    if not subject.strip() or len(subject) > SUBJECT_CHARS:
        raise Refused("the provider's answer does not say who signed in", "malformed")
    return f"{issuer}#{subject}"


def verified_email(claims: Mapping[str, Any]) -> str:
    """Returns the normalised e-mail address that the provider says it has verified; "" if there is none."""
    address = claims.get("email")
    # Exactly true: some providers send it as text, and `"false"` is true to Python. An address that somebody merely
    # typed in would sign them in as whoever it belongs to.
    if claims.get("email_verified") is not True or not isinstance(address, str):
        return ""
    return normalise_identity(EMAIL, address)


def person_from_claims(claims: Mapping[str, Any], mapping: ClaimsMapping, tenant: str) -> Person | None:
    """Makes a person of `tenant` of claims alone; None for one in no mapped group. Raises `Refused` (`malformed`)."""
    login = login_from_claims(claims)
    given = claims.get(mapping.groups_claim)
    # Some providers send one group as text; letter by letter it would be no group at all, or a strange one.
    groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    mapped = [mapping.roles[group] for group in groups if isinstance(group, str) and group in mapping.roles]
    if not mapped:
        return None
    return Person(
        id=id_from_login(login),
        name=_text(claims.get("name")) or _text(claims.get("preferred_username")) or verified_email(claims),
        tenant=tenant,
        tier=mapping.tier,
        roles=tuple(dict.fromkeys(role for roles in mapped for role in roles)),
        # OpenID Connect Core 1.0, section 5.1: some write `en_US` where BCP 47 has `en-US`.
        locale=_text(claims.get("locale")).replace("_", "-"),
        identities={OIDC: (login,)},
    )


def _text(value: Any) -> str:
    # Names stand on cards and in receipts: line breaks and marks of direction could make one read like another line.
    printable = "".join(char for char in value if char.isprintable()) if isinstance(value, str) else ""
    return printable.strip()[:NAME_CHARS]
