import pytest
from tables import table

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.people.directory import turn_context

ANA = Person(id="ana", attributes={"costCentre": "4711"})


def test_the_directory_says_what_policies_read_of_a_user() -> None:
    """A person's attributes become the context fields `user.<name>`, beside what was given of other things."""
    assert turn_context(ANA, {"project": "moon"}) == {"project": "moon", "user.costCentre": "4711"}


@table("name", "user.costCentre", "user.tier", "user")
def test_nobody_says_it_of_himself(name: str) -> None:
    with pytest.raises(Refused) as raised:
        turn_context(ANA, {name: "x"})
    assert f"`{name}`" in raised.value.message
    assert raised.value.code == "malformed"
