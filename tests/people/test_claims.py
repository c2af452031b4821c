from datetime import UTC, datetime
from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import ConfigError, Refused
from signoff.contracts.ids import is_id
from signoff.contracts.person import Delegation, Person
from signoff.formats.replace import replace
from signoff.people.claims import ClaimsDirectory, ClaimsMapping, login_from_claims
from signoff.people.directory import Directory, FixedDirectory
from signoff.people.login import id_from_login

ISSUER = "https://login.example.com/realms/one"
NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANA = Person(
    id="ana",
    roles=("finance",),
    identities={"oidc": (f"{ISSUER}#42",), "email": ("ana@example.com",)},
    delegations=(Delegation(to="bo", until=datetime(2030, 1, 1, tzinfo=UTC)),),
)
BO = Person(id="bo", identities={"email": ("bo@example.com",)})
GONE = Person(id="gone", active=False, identities={"email": ("gone@example.com",)})
MAPPING = ClaimsMapping(roles={"fin": ("finance", "approvers"), "staff": (), "adm": ("approvers", "admin")})


def claims(sub: str = "7", **more: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "sub": sub, "aud": "signoff", **more}


def mailed(address: str, **more: Any) -> dict[str, Any]:
    return claims(**{"email": address, "email_verified": True, **more})


@pytest.fixture
def directory() -> ClaimsDirectory:
    return ClaimsDirectory(FixedDirectory([ANA, BO, GONE]), MAPPING)


def refusal(directory: ClaimsDirectory, given: dict[str, Any]) -> Refused:
    with pytest.raises(Refused) as caught:
        directory.admit(given)
    return caught.value


def test_declared_login_is_that_person_whatever_the_claims(directory: ClaimsDirectory) -> None:
    assert directory.admit(claims("42", groups=["adm"], name="Root", email="bo@example.com")) is ANA


def test_verified_address_is_that_person(directory: ClaimsDirectory) -> None:
    assert directory.admit(mailed("BO@Example.com")) is BO
    for claimed in (False, None, "true", 1):
        assert refusal(directory, mailed("bo@example.com", email_verified=claimed)).code == "not_allowed"


def test_address_with_another_declared_login_is_refused(directory: ClaimsDirectory) -> None:
    assert refusal(directory, mailed("ana@example.com", groups=["fin"])).code == "not_allowed"
    elsewhere = {**mailed("ana@example.com"), "iss": "https://other.example.com"}
    assert directory.admit(elsewhere) is ANA


SPELLINGS = ('"ana"@corp.com', "ana@corp\u3002com", "mailto:ana@corp.com", "Ana <ana@corp.com>", "\uff41na@corp.com")


@table("claim", "email", "emails", "preferred_username", "upn")
@table("address", *SPELLINGS)
def test_other_spelling_of_a_declared_address_makes_no_second_person(address: str, claim: str) -> None:
    declared = Person(id="ana", identities={"email": ("Ana@Corp.com",)})
    directory = ClaimsDirectory(FixedDirectory([declared]), MAPPING)
    assert refusal(directory, claims(groups=["fin"], **{claim: address})).context["person"] == "ana"
    assert [person.id for person in directory.all()] == ["ana"]


@pytest.mark.parametrize("address", ["ana(work)@corp.com", "ana.@corp.com", "\u0430na@corp.com", "ana@corp"])
def test_login_with_an_invalid_address_makes_no_person(directory: ClaimsDirectory, address: str) -> None:
    for claim in ("email", "emails", "preferred_username", "upn", "unique_name"):
        found = refusal(directory, claims(groups=["fin"], **{claim: address}))
        assert (found.code, found.message) == (
            "malformed",
            "this login has an email address not of the form `ana@example.com`; ask the administrator of your sign-in "
            "provider",
        )
    assert directory.admit(claims(groups=["fin"], preferred_username="@ana", email="cy@b\u00fccher.example"))
    # A person with a declared login needs no address.
    assert directory.admit(claims("42", email=address)) is ANA


def test_international_domain_is_one_address_in_both_spellings() -> None:
    eva = Person(id="eva", identities={"email": ("Eva@B\u00fccher.example",)})
    directory = ClaimsDirectory(FixedDirectory([eva]), MAPPING)
    for address in ("eva@b\u00fccher.example", "eva@xn--bcher-kva.example", "eva@B\u00dcCHER\u3002example"):
        assert directory.admit(mailed(address)).id == "eva"
        found = directory.by_identity("email", address)
        assert found is not None
        assert found.identities["email"] == ("eva@xn--bcher-kva.example",)
    # `strasse.example` is a different domain, to which IDNA 2003 mapped this one.
    street = FixedDirectory([Person(id="eva", identities={"email": ("eva@stra\u00dfe.example",)})])
    assert street.by_identity("email", "eva@strasse.example") is None


def test_inactive_person_gets_no_second_person(directory: ClaimsDirectory) -> None:
    assert refusal(directory, mailed("gone@example.com", groups=["adm"])).code == "not_allowed"
    assert [person.id for person in directory.all()] == ["ana", "bo", "gone"]


def test_mapped_groups_make_a_person(directory: ClaimsDirectory) -> None:
    made = directory.admit(claims(groups=["fin", "adm", "root", 5], name="Cy\u202e Young", locale="de_DE"))
    assert (made.name, made.roles, made.locale, made.tier) == (
        "Cy Young",
        ("finance", "approvers", "admin"),
        "de-DE",
        "standard",
    )
    assert is_id(made.id)
    assert made.id == id_from_login(f"{ISSUER}#7") != id_from_login(f"{ISSUER}#8")
    assert made.identities == {"oidc": (f"{ISSUER}#7",)}
    assert directory.admit(claims(groups="staff", preferred_username="cy")).roles == ()


@pytest.mark.parametrize("groups", [None, [], ["root"], "root", {"fin": 1}, 5])
def test_login_without_a_mapped_group_makes_no_person(directory: ClaimsDirectory, groups: Any) -> None:
    assert refusal(directory, claims(groups=groups)).code == "not_allowed"
    closed = ClaimsDirectory(FixedDirectory([ANA, BO]))
    assert refusal(closed, claims(groups=["fin"], roles=["admin"])).code == "not_allowed"
    assert closed.admit(claims("42")) is ANA


def test_directory_finds_admitted_people(directory: ClaimsDirectory) -> None:
    assert isinstance(directory, Directory)
    made = directory.admit(claims(groups=["fin"]))
    assert directory.find(made.id) == directory.by_identity("oidc", f"{ISSUER}#7") == made
    assert directory.find(made.id, "other") is None
    assert directory.by_identity("oidc", f"{ISSUER}#7", "other") is None
    assert directory.by_identity("email", f"{ISSUER}#7") is None
    assert (directory.by_identity("oidc", f"{ISSUER}#42"), directory.find("bo")) == (ANA, BO)
    assert [person.id for person in directory.all("main")] == ["ana", "bo", "gone", made.id]
    assert directory.all("other") == ()
    assert directory.delegators("bo", "main", NOW) == (ANA,)
    assert directory.admit(claims(groups=["staff"])).roles == ()
    assert refusal(directory, claims(groups=[])).code == "not_allowed"
    assert directory.find(made.id) is None


def test_declared_person_may_have_the_id_of_a_login() -> None:
    own_id = id_from_login(f"{ISSUER}#7")
    off = ClaimsDirectory(FixedDirectory([Person(id=own_id, active=False)]), MAPPING)
    assert refusal(off, claims(groups=["fin"])).code == "not_allowed"


@pytest.mark.parametrize(
    "broken",
    [{"iss": ISSUER}, {"sub": "7"}, claims(" "), claims("x" * 256), {"iss": "a#b", "sub": "7"}, {"iss": 1, "sub": 2}],
)
def test_claims_without_a_login_are_refused(directory: ClaimsDirectory, broken: dict[str, Any]) -> None:
    assert refusal(directory, broken).code == "malformed"
    with pytest.raises(Refused):
        login_from_claims(broken)


@table("wrong", {"roles": {"fin": ("finance team",)}}, {"tenants": {"one": "a/b"}})
def test_mapping_with_an_invalid_role_or_tenant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="can be neither a role nor a tenant"):
        ClaimsMapping(**wrong)


OTHER_ANA = Person(id="ana", tenant="acme", identities={"oidc": (f"{ISSUER}#42",), "email": ("bo@example.com",)})
BY_CLAIM = replace(MAPPING, tenant_claim="org")


@pytest.fixture
def two_tenants() -> ClaimsDirectory:
    return ClaimsDirectory(FixedDirectory([ANA, BO, OTHER_ANA]), BY_CLAIM)


def test_login_matches_only_people_of_the_claimed_tenant(two_tenants: ClaimsDirectory) -> None:
    assert two_tenants.admit(claims("42", org="main")) is ANA
    assert two_tenants.admit(claims("42", org="acme")) is OTHER_ANA
    assert two_tenants.admit(mailed("bo@example.com", org="main")) is BO
    without_login = replace(OTHER_ANA, identities={"email": ("cy@example.com",)})
    assert refusal(ClaimsDirectory(FixedDirectory([without_login]), BY_CLAIM), mailed("cy@example.com", org="main"))
    made = two_tenants.admit(claims(groups=["fin"], org="acme"))
    assert (made.tenant, two_tenants.find(made.id, "acme"), two_tenants.find(made.id)) == ("acme", made, None)


def test_login_moved_to_another_tenant_leaves_the_first(two_tenants: ClaimsDirectory) -> None:
    made = two_tenants.admit(claims(groups=["fin"], org="acme"))
    moved = two_tenants.admit(claims(groups=["fin"], org="main"))
    assert (two_tenants.find(made.id, "acme"), two_tenants.find(made.id)) == (None, moved)
    assert refusal(two_tenants, claims(groups=["fin"])).code == "not_allowed"
    assert two_tenants.find(made.id) is None


@pytest.mark.parametrize("named", [None, "", "nowhere", "Acme", ["acme"], ["acme", "main"], {"acme": 1}, 5, True])
def test_claim_without_a_known_tenant_is_refused(two_tenants: ClaimsDirectory, named: Any) -> None:
    for given in (claims("42", org=named), claims(groups=["fin"], org=named)):
        found = refusal(two_tenants, given)
        assert (found.code, found.message) == (
            "not_allowed",
            "this login names no known tenant; ask the administrator of your sign-in provider",
        )
    assert refusal(two_tenants, claims("42")).code == "not_allowed"


def test_tenant_mapping_accepts_only_its_values() -> None:
    mapping = replace(BY_CLAIM, tenants={"9f1c": "acme", "77": "new"})
    directory = ClaimsDirectory(FixedDirectory([ANA, BO, OTHER_ANA]), mapping)
    assert directory.admit(claims("42", org="9f1c")) is OTHER_ANA
    assert directory.admit(claims(groups=["fin"], org="77")).tenant == "new"
    assert refusal(directory, claims("42", org="acme")).code == "not_allowed"
