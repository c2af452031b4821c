"""The base of all shapes: frozen, forgiving of what is new, and light."""

import pytest
from pydantic import Field, ValidationError
from tables import table

from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.person import Person, Principal


def test_a_shape_remembers_values_and_not_which_were_given() -> None:
    person = Person.model_validate_json('{"id": "guest", "tier": "trusted"}')
    copied = person.model_copy(update={"name": "Guest"})
    assert person.model_fields_set == set()
    assert copied.model_fields_set == {"name"}
    assert Person(id="other").model_fields_set == set()
    assert (person.id, person.tier, copied.name, copied.tier) == ("guest", "trusted", "Guest", "trusted")
    assert person == Person(id="guest", tier="trusted")


def test_a_shape_is_frozen_and_reads_what_a_later_version_wrote() -> None:
    """Nothing changes in place; an unknown field is passed over, so that old workers read new histories."""
    principal = Principal.model_validate({"user": "guest", "invented_later": 1})
    with pytest.raises(ValidationError):
        principal.user = "other"  # type: ignore[misc]
    assert principal.user == "guest"


class _Aliased(FrozenModel):
    """A record whose field is written otherwise than it is named."""

    max_price: int = Field(default=0, alias="maxPrice")


@table("deep", [False, True])
def test_a_record_is_copied_with_other_values_in_its_own_fields_only(deep: bool) -> None:
    person = Person(id="guest")
    assert person.model_copy(update={"tier": "trusted"}, deep=deep) == Person(id="guest", tier="trusted")
    assert person.model_copy(update={}, deep=deep) == person.model_copy(deep=deep) == person
    with pytest.raises(TypeError, match=r"^Person has no field teir, zone$"):
        person.model_copy(update={"zone": "UTC", "tier": "trusted", "teir": "trusted"}, deep=deep)

    aliased = _Aliased.model_validate({"maxPrice": 1})
    assert aliased.model_copy(update={"max_price": 2}, deep=deep).max_price == 2
    with pytest.raises(TypeError, match=r"^_Aliased has no field maxPrice$"):
        aliased.model_copy(update={"maxPrice": 2}, deep=deep)
