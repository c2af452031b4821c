from datetime import UTC, datetime, timedelta
from typing import Any

from tables import table

from signoff.contracts.person import Delegation, Person
from signoff.formats.replace import replace
from signoff.keys.signatures import PrivateKeys, Signer, Verifier, new_key
from signoff.people.directory import Directory, FixedDirectory
from signoff.people.login import id_from_login
from signoff.people.vouched_directory import VouchedDirectory, VouchedPerson, vouch, vouched_people, vouching_problem
from signoff.testing.builders import a_person

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEEK = timedelta(days=7)
SIGNER = Signer(PrivateKeys(keys=(new_key(NOW - WEEK),)))
LOGIN = "https://login.example.com#7"
CY = Person(id=id_from_login(LOGIN), name="Cy", roles=("finance",), identities={"oidc": (LOGIN,)})
ANA = Person(id="ana", roles=("finance",), delegations=(Delegation(to="ana2", until=NOW),))
NOBODY = FixedDirectory([])


def vouched(person: Person = CY, names: tuple[str, ...] = ("cy@example.com", "cy.young")) -> VouchedPerson:
    made = vouch(SIGNER, person, names=names, now=NOW, lifetime=WEEK)
    return VouchedPerson.model_validate_json(made.model_dump_json(exclude_defaults=True))


def why(row: VouchedPerson, *declared: Person, now: datetime = NOW, verifier: Verifier | None = None) -> str:
    return vouching_problem(row, FixedDirectory(declared), verifier or SIGNER.verifier(), now)


def test_signed_identity_counts_until_it_expires() -> None:
    assert why(vouched()) == ""
    assert why(vouched(), now=NOW + WEEK - timedelta(milliseconds=1)) == ""
    assert why(vouched(), now=NOW + WEEK) == "over"
    assert vouched_people([vouched()], NOBODY, SIGNER.verifier(), NOW) == (CY,)
    assert vouched_people([vouched()], NOBODY, SIGNER.verifier(), NOW + WEEK) == ()


@table(
    "change",
    {"person": replace(CY, roles=("finance", "admin"))},
    {"person": replace(CY, tenant="acme")},
    {"person": replace(CY, name="Ana")},
    {"names": ()},
    {"until": NOW + 2 * WEEK},
    {"seen_at": NOW + timedelta(days=1)},
    {"key_id": ""},
    {"signature": ""},
    {"signature": "AAAA"},
)
def test_altered_identity_row_is_rejected(change: dict[str, Any]) -> None:
    assert why(replace(vouched(), **change)) == "not signed by the gateway"


def test_unknown_or_retired_key_signs_no_identity() -> None:
    other = Signer(PrivateKeys(keys=(new_key(NOW),)))
    assert why(vouched(), verifier=other.verifier()) == "not signed by the gateway"
    assert why(vouched(), verifier=Verifier()) == "not signed by the gateway"
    [key] = (new_key(NOW - WEEK),)
    signer = Signer(PrivateKeys(keys=(key,)))
    row = vouch(signer, CY, names=(), now=NOW, lifetime=WEEK)
    for retired, found in ((NOW, "not signed by the gateway"), (NOW + timedelta(hours=1), "")):
        verifier = Verifier((replace(key.public_half(), retired_at=retired),))
        assert why(row, verifier=verifier) == found


@table(
    "person",
    replace(CY, id="ana"),
    replace(CY, identities={}),
    replace(CY, identities={"oidc": (LOGIN, "https://login.example.com#8")}),
    replace(CY, active=False),
    replace(CY, delegations=ANA.delegations),
)
def test_identity_outside_the_login_format_is_rejected(person: Person) -> None:
    assert why(vouched(person)) == "not in the form of a login's row"


@table(
    "declared",
    a_person(CY.id),
    Person(id=CY.id, active=False),
    Person(id="cy", identities={"oidc": (LOGIN,)}),
    Person(id="cy", active=False, identities={"email": ("CY@example.com",)}),
    Person(id="young", identities={"email": ("cy+work@example.com",)}),
    Person(id="Cy", identities={"email": ("cy@EXAMPLE.com",)}),
)
def test_declared_person_overrides_a_signed_identity(declared: Person) -> None:
    assert why(vouched(), declared) == "this person is declared"
    assert why(vouched(), replace(declared, tenant="acme")) == ""


def test_directory_adds_signed_identities_to_declared_people() -> None:
    people = VouchedDirectory(FixedDirectory([ANA, Person(id="ana2")]), [CY])
    assert isinstance(people, Directory)
    assert (people.find(CY.id), people.find("ana"), people.find(CY.id, "acme")) == (CY, ANA, None)
    assert people.by_identity("oidc", LOGIN) == CY
    assert people.by_identity("oidc", LOGIN, "acme") is None
    assert people.by_identity("email", LOGIN) is None
    assert [person.id for person in people.all("main")] == ["ana", "ana2", CY.id]
    assert people.all("acme") == ()
    assert people.delegators("ana2", "main", NOW - WEEK) == (ANA,)
    people.replace_people([])
    assert people.find(CY.id) is None
