from typing import Any

import pytest
from tables import table

from signoff.contracts.errors import Refused
from signoff.contracts.limits import LOGIN_NAME_CHARS, LOGIN_NAMES
from signoff.contracts.person import Person
from signoff.people.addresses import DeclaredNames, claimed_names, normalise_address
from signoff.people.directory import FixedDirectory


@table(
    ("written", "name"),
    ("Ana@Example.COM", "ana@example.com"),
    (" ana+tag+more@example.com ", "ana@example.com"),
    ("+tag@example.com", "+tag@example.com"),
    ("\uff21\uff4e\uff41\uff20example\uff0ecom", "ana@example.com"),
    ("a\u00adn\u200ba@example.com.", "ana@example.com"),
    ("STRASSE@x.de", "strasse@x.de"),
    ("stra\u00dfe@x.de", "strasse@x.de"),
    ("ana@xn--bcher-kva.example", "ana@b\u00fccher.example"),
    ("ana@xn--\x80", "ana@xn--"),
    ('"ana"@example.com', "ana@example.com"),
    ('"a\\na"@example.com', "ana@example.com"),
    ("ana@example\u3002com", "ana@example.com"),
    ("ana@example\uff61com", "ana@example.com"),
    ("MAILTO:ana@example.com", "ana@example.com"),
    ("Ana <ana@example.com>", "ana@example.com"),
    ("Ana", "ana"),
    ("\u200b", ""),
    ("x" * (LOGIN_NAME_CHARS + 1), "x" * LOGIN_NAME_CHARS),
)
def test_address_has_one_normal_form(written: str, name: str) -> None:
    assert normalise_address(written) == name
    assert normalise_address(name) == name


@table(
    ("claims", "names"),
    ({"email": "Ana@x.de", "email_verified": False}, ("ana@x.de",)),
    ({"email": "a@x.de", "upn": "B@x.de", "preferred_username": "C", "emails": ["d@x.de", "a@x.de", 5]},
     ("a@x.de", "c", "b@x.de", "d@x.de")),
    ({"email": 5, "emails": {"a@x.de": 1}, "upn": "", "name": "Ana"}, ()),
)  # fmt: skip
def test_every_claim_with_a_name_is_read(claims: dict[str, Any], names: tuple[str, ...]) -> None:
    assert claimed_names(claims) == names


def test_login_with_too_many_names_is_refused() -> None:
    many = [f"a{number}@x.de" for number in range(LOGIN_NAMES)]
    assert len(claimed_names({"emails": many})) == LOGIN_NAMES
    with pytest.raises(Refused) as caught:
        claimed_names({"emails": many, "email": "b@x.de"})
    assert caught.value.code == "malformed"


def test_names_match_ids_and_addresses_of_their_tenant_only() -> None:
    ana = Person(id="Ana", active=False, identities={"email": ("ana+work@x.de",), "slack": ("T1:bo",)})
    names = DeclaredNames(FixedDirectory([ana, Person(id="cy", tenant="other")]))
    assert names.find(("nobody", "ana@x.de"), "main") == names.find(("ana",), "main") == ana
    assert names.find(("t1:bo", "cy"), "main") is None
    assert names.find((), "main") is None
