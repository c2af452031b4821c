from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import Field
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.declared_fields import IN_CODE, FieldSpec
from signoff.formats.record_section import record_fields, record_section, section_table, to_record
from signoff.formats.yaml_file import parse_yaml
from signoff.formats.yaml_section import read_section


@dataclass(frozen=True, kw_only=True)
class _Wheel:
    """One wheel."""

    spokes: tuple[str, ...]
    """Names of its spokes."""


@dataclass(frozen=True, kw_only=True)
class _Cart:
    """One cart.

    Only editors read the first paragraph.
    """

    name: Annotated[str, FieldSpec(key=IN_CODE)] = ""
    """Not a key."""
    size: Annotated[int, Field(ge=2)] = 2
    """How many wheels.

    [Below](#wheels).
    """
    wheels: Mapping[str, _Wheel] = field(default_factory=dict)
    """Wheels by name."""
    patience: float | None = None
    """The waiting time."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain data."""
    check: Annotated[Callable[[], None] | None, FieldSpec(key=str)] = None
    """`module:function`."""


SECTION = record_section(_Cart, colour=(str, Field("red", description="Of the section alone.")))


def read(text: str) -> Any:
    file = parse_yaml(text, "cart.yaml")
    return read_section(file, (), SECTION, file.data, "cart")


def test_section_becomes_a_record_with_tuples_and_inner_records() -> None:
    section = read("wheels: {left: {spokes: [a, b]}}\npatience: 2m\nsettings: {list: [1]}\n")
    wheels = {"left": _Wheel(spokes=("a", "b"))}
    assert to_record(section) == _Cart(wheels=wheels, patience=120.0, settings={"list": [1]})
    assert record_fields(read("check: a:b")) == record_fields(read("{}")) | {"check": "a:b"}
    assert dict(read("{}"))["colour"] == "red"


@table("text", "name: x", "size: 1", "wheels: {left: {}}", "wheels: {left: {spoke: []}}", "size: x")
def test_section_refuses_code_keys_and_invalid_values(text: str) -> None:
    with pytest.raises(ConfigError):
        read(text)


def test_schema_and_table_hold_the_fields_with_their_descriptions() -> None:
    schema = SECTION.model_json_schema(by_alias=False)
    assert schema["description"] == "One cart."
    assert schema["properties"]["size"] == {
        "default": 2, "description": "How many wheels.", "minimum": 2, "title": "Size", "type": "integer",
    }  # fmt: skip
    assert "name" not in schema["properties"]
    rows = section_table(SECTION).splitlines()
    assert rows[2] == "| `size` | How many wheels. [Below](#wheels). | `2` |"
    assert rows[-1] == "| `colour` | Of the section alone. | `red` |"


class _Stall(FrozenModel):
    """One stall of a market."""

    opens: datetime
    """When it opens."""
    fee: float | None = None
    """What it costs."""
    goods: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Names of goods by kind."""
    sign: dict[str, str] | None = None
    """The text on the sign."""


def test_model_section_allows_other_key_types() -> None:
    section = record_section(_Stall, opens=str, fee=Annotated[float, Field(gt=0)], sign=dict[str, Any])
    file = parse_yaml("opens: 2030-01-01T08:00:00Z\nfee: 2.5\ngoods: {fruit: [apples]}\n", "stall.yaml")
    read_stall = read_section(file, (), section, file.data, "stall")
    assert record_fields(read_stall) == {
        "opens": "2030-01-01T08:00:00Z", "fee": 2.5, "goods": {"fruit": ("apples",)}, "sign": None,
    }  # fmt: skip
    assert to_record(read_stall).opens == datetime(2030, 1, 1, 8, tzinfo=UTC)
    keys = section.model_json_schema(by_alias=False)["properties"]
    assert keys["opens"] == {"description": "When it opens.", "title": "Opens", "type": "string"}
    wrong = parse_yaml("opens: x\nfee: 0\n", "stall.yaml")
    with pytest.raises(ConfigError, match=r"stall\.yaml:2: `fee` of stall"):
        read_section(wrong, (), section, wrong.data, "stall")
