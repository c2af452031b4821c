import pytest
from pydantic import ValidationError

from signoff.contracts.person import Person, Principal
from signoff.formats.replace import replace


def test_model_stores_values_and_not_the_set_of_given_fields() -> None:
    person = Person.model_validate_json('{"id": "guest", "tier": "trusted"}')
    copied = replace(person, name="Guest")
    assert person.model_fields_set == set()
    assert copied.model_fields_set == {"name"}
    assert Person(id="other").model_fields_set == set()
    assert (person.id, person.tier, copied.name, copied.tier) == ("guest", "trusted", "Guest", "trusted")
    assert person == Person(id="guest", tier="trusted")


def test_model_is_frozen_and_ignores_fields_of_later_versions() -> None:
    """Old workers read new histories."""
    principal = Principal.model_validate({"user": "guest", "invented_later": 1})
    with pytest.raises(ValidationError):
        principal.user = "other"  # type: ignore[misc]
    assert principal.user == "guest"
