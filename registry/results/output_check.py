"""Checks what a tool returned against its declared output (B06, V05)."""

from typing import Any, Final

from signoff.languages.remarks import english
from signoff.registry.tool import Tool
from signoff.registry.tool_result import AnnotatedRecord, ToolResult, jsonable

INVALID: Final = "output_invalid"
_PROBLEMS_SHOWN: Final = 5


def declared_value(result: ToolResult) -> Any:
    """Returns the value that the output schema describes: `structured` where the handler gives it, else the value;
    plain JSON.
    """
    value = result.value if result.structured is None else result.structured
    return value.values if isinstance(value, AnnotatedRecord) else jsonable(value)


def output_problem(tool: Tool, result: ToolResult) -> str:
    """Says what is wrong with a result, for the model; empty when nothing is, or the tool declares no output."""
    if tool.output is None:
        return ""
    problems = tool.output.check(declared_value(result))
    if not problems:
        return ""
    words = english([each.words for each in problems[:_PROBLEMS_SHOWN]])
    more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    # A model that reads of a failure calls again, and what the tool does would happen twice: that it ran is told first.
    return (
        f"{INVALID}: `{tool.name}` ran and took effect, but its result does not fit its declared "
        f"output: {words}{more}. Do not call it again for that; tell the user."
    )
