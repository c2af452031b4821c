from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.registry.mcp.import_file import import_path, read_import, write_import
from signoff.registry.mcp.imported_tool import ImportedTool, read_listing

TRICKY = st.sampled_from(["", "1e3", "~", "no", "12:30", "${HOME}", "a: b", "x\ny\n", " lead", "\u202e", "# c", "0x1f"])
WORDS = TRICKY | st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


def a_tool(**fields: Any) -> ImportedTool:
    return ImportedTool(**{"remote_name": "say", "description": "Says", "input_schema": {"type": "object"}} | fields)


@given(description=WORDS, title=WORDS, default=JSON, name=WORDS)
def test_import_file_is_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, description: str, title: str, default: Any, name: str
) -> None:
    """The file is ASCII, so that no character is invisible."""
    path = tmp_path_factory.getbasetemp() / "import" / "mcp" / "talk.yaml"
    path.parent.parent.mkdir(exist_ok=True)
    tool = a_tool(
        description=description,
        title=title,
        input_schema={"type": "object", "properties": {name: {"default": default}}},
        hints={"read_only": True},
    )
    write_import(path, "talk", [tool])
    assert path.read_bytes().isascii()
    _, found = read_import(path, "talk")
    assert found["mcp__talk__say"].digest == tool.digest


def test_imported_tools_are_written_in_name_order(tmp_path: Path) -> None:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("b", "a")]
    first, second = import_path(tmp_path, "one"), import_path(tmp_path, "two")
    write_import(first, "talk", read_listing("talk", listed).tools.values())
    write_import(second, "talk", read_listing("talk", listed[::-1]).tools.values())
    assert first == tmp_path / "mcp" / "one.yaml"
    assert first.read_bytes() == second.read_bytes()
    assert list(tmp_path.glob("mcp/*.part")) == []


@table(
    ("text", "problem"),
    ("version: 2", "mcp.yaml:1: `version` of an import of an MCP server must be 1"),
    ("version: 1\ntool: []", "mcp.yaml:2: unknown key `tool`"),
    ("version: 1\ntools:\n- name: a", "mcp.yaml:3: `input_schema` of tool 1 is missing"),
    (
        "version: 1\ntools:\n- name: a\n  input_schema: {type: object}\n  hints: {safe: true}",
        "mcp.yaml:5: there is no hint `safe`",
    ),
    ("version: 1\ntools:\n- {name: a, input_schema: {type: string}}", "mcp.yaml:3: tool `a`: `input_schema` must"),
    (
        "version: 1\ntools:\n"
        + "".join(f"- {{name: {name}, input_schema: {{type: object}}}}\n" for name in ("a.b", "a_b")),
        "mcp.yaml:4: tool `a_b` is there twice",
    ),
)
def test_malformed_import_file_is_refused_with_its_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mcp.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_import(path, "talk", "mcp.yaml")
    assert caught.value.message.startswith(problem)
