"""Maps an OpenID Connect provider's claims to declared or undeclared people."""

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
# OpenID Connect Core 1.0, section 2: `sub` has at most 255 ASCII characters.
SUBJECT_CHARS: Final = 255
_UNKNOWN: Final = "this login belongs to no known person; ask the administrator of the directory"
_NO_TENANT: Final = "this login names no known tenant; ask the administrator of your sign-in provider"

_ODD_ADDRESS: Final = (
    "this login has an email address not of the form `ana@example.com`; ask the administrator of your sign-in provider"
)


class ClaimsMapping(BaseModel):
    """Maps a provider's claims to people.

    Raises `ConfigError`.

    A person in none of the mapped groups is unknown. With the default empty mapping, only declared people can sign in.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups_claim: str = "groups"
    """The claim with a person's groups."""
    roles: Mapping[str, tuple[str, ...]] = {}
    """The roles of each group."""
    tier: str = "standard"
    """The tier of undeclared people."""
    tenant_claim: str = ""
    """The claim with a person's tenant. Without one, everyone belongs to the tenant `main`."""
    tenants: Mapping[str, str] = {}
    """Maps the claim's values to tenants, excluding all others.

    If empty, values are tenant names.
    """

    def model_post_init(self, context: Any) -> None:
        for value in (*self.tenants.values(), *(role for roles in self.roles.values() for role in roles)):
            if not is_id(value):
                raise ConfigError(f"`{value}` can be neither a role nor a tenant", field="roles", value=value)


class ClaimsDirectory(VouchedDirectory):
    """Admits people with a provider's claims. Claims never change who is declared."""

    def __init__(self, declared: Directory, mapping: ClaimsMapping | None = None) -> None:
        super().__init__(declared)
        self.mapping = mapping or ClaimsMapping()

    def admit(self, claims: Mapping[str, Any]) -> Person:
        """Return the active person of verified claims, from an ID token or the userinfo endpoint.

        Raises `Refused` (`not_allowed`) for anyone else, without names: strangers must not learn who is declared. Its
        context contains `login`, and `person` if the login claims the name of a declared person.
        """
        own_id = id_from_login(login_from_claims(claims))
        # Forget the login first, in every tenant: a person who lost their groups or moved to another tenant must not
        # keep the roles of an earlier login.
        for place in [each for each in self._vouched if each[1] == own_id]:
            del self._vouched[place]
        tenant = self._find_tenant(claims)
        # Check declared people first: a group mapped too widely must not give them more than their declaration.
        person = self._find_declared(claims, tenant) or self._make_person(claims, tenant)
        if person is None or not person.active:
            raise Refused(_UNKNOWN, "not_allowed", login=login_from_claims(claims))
        return person

    def _find_tenant(self, claims: Mapping[str, Any]) -> str:
        """Raise `Refused` if the claims name no tenant."""
        mapping = self.mapping
        if not mapping.tenant_claim:
            return DEFAULT_TENANT
        named = claims.get(mapping.tenant_claim)
        # Reject a list, even with one entry: nothing here may choose among several.
        if not isinstance(named, str) or not named:
            raise Refused(_NO_TENANT, "not_allowed", login=login_from_claims(claims))
        tenants = {DEFAULT_TENANT, *(person.tenant for person in self.declared.all())}
        # Accept only known tenants: a provider that lets people enter their own must not create new ones.
        tenant = mapping.tenants.get(named) if mapping.tenants else named if named in tenants else None
        if tenant is None:
            raise Refused(_NO_TENANT, "not_allowed", login=login_from_claims(claims))
        return tenant

    def _make_person(self, claims: Mapping[str, Any], tenant: str) -> Person | None:
        """Return the person of these claims as they are now, or `None` once they left the groups.

        Raises `Refused` if the claims contain a name, verified or not, of a declared person.
        """
        own_id = id_from_login(login_from_claims(claims))
        person = person_from_claims(claims, self.mapping, tenant)
        namesake = DeclaredNames(self.declared).find(claimed_names(claims), tenant)
        # As two people, a declared person could fill two places of a quorum, or approve their own request.
        if namesake is not None:
            raise Refused(_UNKNOWN, "not_allowed", login=login_from_claims(claims), person=namesake.id)
        if person is not None and has_odd_address(claims):
            # Another spelling of an address would bypass the search for a declared person.
            raise Refused(_ODD_ADDRESS, "malformed")
        if person is not None:
            self._vouched[(tenant, own_id)] = person
        return self.find(own_id, tenant)

    def _find_declared(self, claims: Mapping[str, Any], tenant: str) -> Person | None:
        login = login_from_claims(claims)
        person = self.declared.by_identity(OIDC, login, tenant)
        address = verified_email(claims)
        if person is not None or not address:
            return person
        person = self.declared.by_identity(EMAIL, address, tenant)
        issuer = f"{claims['iss']}#"
        # Email addresses may be reassigned to other people, but a recorded login may not.
        elsewhere = person is not None and any(each.startswith(issuer) for each in person.identities.get(OIDC, ()))
        return None if elsewhere else person


def login_from_claims(claims: Mapping[str, Any]) -> str:
    """Return `ISSUER#SUBJECT`. Raises `Refused` (`malformed`) if one of the two is missing."""
    # OpenID Connect Core 1.0, section 5.7: only these two together identify a person permanently. An issuer has no
    # fragment (section 2), so that `#` separates them unambiguously.
    issuer, subject = claims.get("iss"), claims.get("sub")
    if not isinstance(issuer, str) or not isinstance(subject, str) or not issuer or "#" in issuer:
        raise Refused("the provider's answer does not identify the person", "malformed")
    if not subject.strip() or len(subject) > SUBJECT_CHARS:
        raise Refused("the provider's answer does not identify the person", "malformed")
    return f"{issuer}#{subject}"


def verified_email(claims: Mapping[str, Any]) -> str:
    """Return the normalised address, or ""."""
    address = claims.get("email")
    # Exactly true: some providers send text, and `"false"` is truthy in Python. With an unverified address, a person
    # could sign in as its owner.
    if claims.get("email_verified") is not True or not isinstance(address, str):
        return ""
    return normalise_identity(EMAIL, address)


def person_from_claims(claims: Mapping[str, Any], mapping: ClaimsMapping, tenant: str) -> Person | None:
    """Return `None` without a mapped group. Raises `Refused` (`malformed`)."""
    login = login_from_claims(claims)
    claimed = claims.get(mapping.groups_claim)
    # Some providers send a single group as text. Its letters would not be groups, or the wrong ones.
    groups = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    mapped = [mapping.roles[group] for group in groups if isinstance(group, str) and group in mapping.roles]
    if not mapped:
        return None
    return Person(
        id=id_from_login(login),
        name=_text(claims.get("name")) or _text(claims.get("preferred_username")) or verified_email(claims),
        tenant=tenant,
        tier=mapping.tier,
        roles=tuple(dict.fromkeys(role for roles in mapped for role in roles)),
        # OpenID Connect Core 1.0, section 5.1: some write `en_US` instead of BCP 47's `en-US`.
        locale=_text(claims.get("locale")).replace("_", "-"),
        identities={OIDC: (login,)},
    )


def _text(value: Any) -> str:
    # Names appear on cards and in receipts: line breaks and direction marks could make one look like another line.
    printable = "".join(char for char in value if char.isprintable()) if isinstance(value, str) else ""
    return printable.strip()[:NAME_CHARS]
