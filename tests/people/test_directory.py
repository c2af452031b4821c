import pytest
from tables import table

from signoff.contracts.errors import Refused
from signoff.contracts.person import Person
from signoff.people.directory import turn_context

ANA = Person(id="ana", attributes={"costCentre": "4711"})


def test_attributes_of_a_person_become_context_fields() -> None:
    assert turn_context(ANA, {"project": "moon"}) == {"project": "moon", "user.costCentre": "4711"}


@table("name", "user.costCentre", "user.tier", "user")
def test_caller_may_not_set_user_fields(name: str) -> None:
    with pytest.raises(Refused) as raised:
        turn_context(ANA, {name: "x"})
    assert f"`{name}`" in raised.value.message
    assert raised.value.code == "malformed"
