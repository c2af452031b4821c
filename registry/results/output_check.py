"""Checks a tool's result against its declared output."""

from typing import Any, Final

from signoff.languages.remarks import english
from signoff.registry.tool import Tool
from signoff.registry.tool_result import AnnotatedRecord, ToolResult, jsonable

INVALID: Final = "output_invalid"
_PROBLEMS_SHOWN: Final = 5


def declared_value(result: ToolResult) -> Any:
    """Return the value that the output schema describes, as plain JSON: `structured` if given, else the value."""
    value = result.value if result.structured is None else result.structured
    return value.values if isinstance(value, AnnotatedRecord) else jsonable(value)


def output_problem(tool: Tool, result: ToolResult) -> str:
    """Return the problem for the model, or "" if the result fits or the tool declares no output."""
    if tool.output is None:
        return ""
    problems = tool.output.check(declared_value(result))
    if not problems:
        return ""
    words = english([each.words for each in problems[:_PROBLEMS_SHOWN]])
    more = f"; and {len(problems) - _PROBLEMS_SHOWN} more" if len(problems) > _PROBLEMS_SHOWN else ""
    # Say first that the tool ran: a model that reads of a failure calls again, and the effect would happen twice.
    return (
        f"{INVALID}: `{tool.name}` ran and took effect, but its result does not fit its declared "
        f"output: {words}{more}. Do not call it again for that; tell the user."
    )
