from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass
from registry_kit import SCHEMA, a_tool, handler
from tables import table

from signoff.contracts.errors import RegistrationError
from signoff.formats.declared_fields import DEFINITION, IN_CODE, FieldSpec, Names, declared_fields
from signoff.formats.yaml_file import YamlFile
from signoff.formats.yaml_section import read_section
from signoff.registry import hooks
from signoff.registry.hooks import Hook
from signoff.registry.manifest.tool_section import tool_section, tool_table
from signoff.registry.registry import ToolRegistry
from signoff.registry.tool import Tool, ToolOptions
from signoff.registry.tool_fields import dropped_gate


@dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid"))
class WiderTool(Tool):
    """A tool with fields that a later version might have: one line each."""

    colour: Annotated[str, DEFINITION] = "red"
    """The colour of the tool.

    [Below](#colours).
    """
    smells: Annotated[Names, FieldSpec(aliases=("odours",))] = ()
    """The smells of its material."""
    locked: Annotated[bool, FieldSpec(shadow="same")] = False
    """Whether it is locked."""
    secretive: Annotated[bool, FieldSpec(hashed="no", key=IN_CODE)] = False
    """Whether it is secret."""


def wider(**fields: Any) -> WiderTool:
    right: dict[str, Any] = {
        "name": "book_flight",
        "description": "Book.",
        "input_schema": SCHEMA,
        "scope": "generalist",
    }
    return WiderTool(**{**right, "handler": handler, **fields})


def test_new_field_is_one_line_with_its_description() -> None:
    section = tool_section(WiderTool)
    keys = section.model_json_schema()["properties"]
    assert {"colour", "smells"} <= set(section.model_fields)
    assert "secretive" not in section.model_fields
    assert keys["colour"]["description"] == "The colour of the tool."
    assert keys["smells"]["anyOf"][0] == {"type": "array", "items": {"type": "string"}}
    file = YamlFile("m.yaml", {}, {})
    read = read_section(file, (), section, {"handler": "a:b", "odours": ["tar"]}, "tool `x`")
    assert dict(read)["smells"] == ["tar"]
    assert "| `colour` | The colour of the tool. [Below](#colours). | `red` |" in tool_table(WiderTool).splitlines()


def test_new_field_is_hashed_as_declared_and_only_if_used() -> None:
    plain = wider()
    assert wider(colour="blue").definition != plain.definition == wider(smells=["tar"]).definition
    hashes = [ToolRegistry([each]).hash for each in (plain, wider(smells=()), wider(smells=("tar",)))]
    assert hashes[0] == hashes[1] != hashes[2]
    assert ToolRegistry([wider(secretive=True)]).hash == hashes[0]


@table(
    ("fields", "words"),
    ({"colour": 3}, "needs `colour` to be text"),
    ({"smells": "tar"}, "needs `smells` to be a list of names"),
    ({"smells": ["tar", 1]}, "needs `smells` to be a list of names"),
    ({"secretive": "yes"}, "needs `secretive` to be true or false"),
    ({"color": "red"}, "has no field `color`; did you mean `colour`?"),
    ({"concurrency": "save"}, "has `concurrency` `save`; allowed: `safe`, `exclusive`; did you mean `safe`?"),
)
def test_field_of_a_wrong_type_is_refused_at_the_declaration(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        wider(**fields)
    assert refused.value.message.startswith(f"tool `book_flight` {words}")
    assert f"{Path(__file__).name}:" in refused.value.message
    assert refused.value.context["field"] == next(iter(fields))


def test_shadow_may_not_drop_a_gate_field() -> None:
    locked = wider(locked=True)
    assert dropped_gate(wider(colour="blue"), [wider(), locked]) == "locked"
    assert dropped_gate(locked, [wider(), locked]) == dropped_gate(locked, [wider()]) == ""


def test_positional_unknown_or_missing_field_is_refused() -> None:
    with pytest.raises(RegistrationError, match="a tool takes its fields by name, such as `Tool"):
        Tool("book_flight")  # type: ignore[call-arg, misc]
    with pytest.raises(RegistrationError, match="a tool has no field `nam`; did you mean `name`"):
        Tool(nam="book_flight")  # type: ignore[call-arg]
    with pytest.raises(RegistrationError, match="tool `book_flight` is declared without `handler`"):
        Tool(name="book_flight", description="Book.", input_schema=SCHEMA, scope="generalist")  # type: ignore[call-arg]


def test_list_is_stored_as_a_tuple() -> None:
    words = ["work"]
    tool = a_tool(tags=words)
    words.append("money")
    assert tool.tags == ("work",)


def test_every_field_has_a_description() -> None:
    assert [name for name, field in declared_fields(Tool).items() if not field.summary.endswith((".", ")", "?"))] == []


def test_every_hook_of_a_tool_is_validated_by_its_kind() -> None:
    kinds = {each.field: each for each in vars(hooks).values() if isinstance(each, Hook)}
    fields = declared_fields(Tool)
    assert {name: fields[name].function for name in kinds.keys() & fields.keys()} == {
        name: kinds[name] for name in kinds.keys() & fields.keys()
    }
    assert {"handler", "available", "check_permissions", "probe", "validate_input"} <= kinds.keys() & fields.keys()


def test_decorator_keywords_are_fields_of_the_tool() -> None:
    assert set(declared_fields(ToolOptions)) < set(declared_fields(Tool))
