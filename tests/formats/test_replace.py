import pytest
from pydantic import BaseModel, Field

from signoff.contracts.person import Person
from signoff.formats.replace import replace


class _Priced(BaseModel):
    max_price: int = Field(default=0, alias="maxPrice")
    model: str = ""


def test_replace_changes_only_the_named_fields_of_a_copy() -> None:
    person = Person(id="guest", name="Guest")
    assert replace(person, tier="trusted") == Person(id="guest", name="Guest", tier="trusted")
    assert replace(person) == person == Person(id="guest", name="Guest")


def test_replace_refuses_unknown_fields_and_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"^Person has no field `teir`; did you mean `tier`\?$"):
        replace(Person(id="guest"), tier="trusted", teir="trusted", zone="UTC")
    with pytest.raises(TypeError, match=r"^_Priced has no field `maxPrice`; did you mean `max_price`\?$"):
        replace(_Priced(), maxPrice=2)


def test_replace_takes_a_field_called_model_and_does_not_validate() -> None:
    changed = replace(_Priced(), model="m", max_price="two")
    assert (changed.model, changed.model_dump(warnings=False)["max_price"]) == ("m", "two")
