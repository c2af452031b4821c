import datetime as dt
from typing import Any

import pytest
from registry_kit import a_tool
from tables import table

from signoff.registry.results.output_check import declared_value, output_problem
from signoff.registry.tool_result import ToolResult

ROWS = {"type": "object", "properties": {"rows": {"type": "integer"}}, "required": ["rows"]}


@pytest.mark.row("B06")
@table(
    ("schema", "result", "fits"),
    (None, ToolResult("anything"), True),
    (ROWS, ToolResult({"rows": 3}), True),
    (ROWS, ToolResult({"rows": "3"}), False),
    (ROWS, ToolResult("3 rows", {"rows": 3}), True),
    (ROWS, ToolResult({"rows": 3}, {"rows": None}), False),
    ({"type": "string", "format": "date"}, ToolResult(dt.date(2030, 1, 2)), True),
    ({"type": "array"}, ToolResult((1, 2)), True),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, ToolResult(1), False),
)
def test_result_is_validated_against_its_schema(schema: Any, result: ToolResult, fits: bool) -> None:
    assert (output_problem(a_tool(output_schema=schema), result) == "") is fits


@pytest.mark.row("B06")
def test_output_error_names_places_and_no_values() -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    found = output_problem(a_tool(output_schema=schema), ToolResult(["s3cret"] * 7))
    assert found == (
        "output_invalid: `book_flight` ran and took effect, but its result does not fit its declared "
        "output: `[0]` must be of type integer; `[1]` must be of type integer; `[2]` must be of type integer; "
        "`[3]` must be of type integer; `[4]` must be of type integer; and 2 more. Do not call it again for that; "
        "tell the user."
    )
    assert declared_value(ToolResult(object(), None)) == "<object>"


def test_output_schema_is_copied_by_its_tool() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    tool = a_tool(output_schema=schema)
    assert output_problem(tool, ToolResult(1)) == ""
    schema["type"] = "string"
    assert output_problem(tool, ToolResult(1)) == ""
