from typing import Any

from tables import table

from signoff.formats.yaml_file import parse_yaml
from signoff.formats.yaml_writer import write_yaml


@table("value", "1e3", "0x1f", "~", "", "no", "12:30", "010", "a: b", "# a", "x\n y\n", " a", 1.5, 7)
def test_yaml_text_and_number_are_read_back_with_their_type(value: Any) -> None:
    found = parse_yaml(write_yaml({"key": [value], "1e3": value}), "a.yaml").data
    assert found == {"key": [value], "1e3": value}
    assert type(found["1e3"]) is type(value)


def test_invisible_characters_are_escaped_on_request() -> None:
    text = "pay \u202eand\u200b möhre"
    assert write_yaml({"a": text}, ascii_only=True).isascii()
    assert "möhre" in write_yaml({"a": text})
    assert parse_yaml(write_yaml({"a": text}, ascii_only=True), "a.yaml").data == {"a": text}


def test_yaml_is_written_without_aliases() -> None:
    shared = {"type": "string"}
    assert "&" not in write_yaml({"a": shared, "b": shared})
