"""The framework's own tools: `read_rest` reads the rest of a cut result, `collect` stores a step's data."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import COLLECT, READ_REST
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.registry.tool_result import ToolResult

HANDLE_CHARS: Final = 64
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "handle": {"type": "string", "minLength": HANDLE_CHARS, "maxLength": HANDLE_CHARS},
        "start": {"type": "integer", "minimum": 0, "description": "The first character to read, from 0."},
    },
    "required": ["handle", "start"],
    "additionalProperties": False,
}


async def _nowhere(args: dict[str, Any], context: ToolContext) -> Any:
    raise ConfigError("this tool reads from a worker's store; only a worker can run it", tool_name=READ_REST)


READ_REST_TOOL: Final = Tool(
    name=READ_REST,
    description="Read on in a result that was too long. Use its handle and start.",
    input_schema=_SCHEMA,
    handler=_nowhere,
    scope="specialist",
    justification="A handle is good in one turn of one actor only.",
    routing="bypass",
    bypass_routing=BypassRouting("It reads a result of the same turn; there is nothing to route."),
    title="Read on in a long result",
    read_only=True,
    # The cut text may come from outside, so fence every part of it.
    untrusted_output=True,
)
"""The declaration. A worker adds its own handler."""


def collect_tool(place: str, schemas: Mapping[str, Mapping[str, Any]]) -> Tool:
    """Return the tool with which a model stores the data of the step at `place`."""
    names = tuple(schemas)

    async def keep(args: dict[str, Any], context: ToolContext) -> ToolResult:
        lacking = [name for name in names if name not in args and context.data.get(name) is None]
        more = f"Still to collect: {_quoted(lacking)}." if lacking else "Nothing more is to be collected here."
        return ToolResult(f"Kept {_quoted(args)}. {more}", data_update=args)

    return Tool(
        name=COLLECT,
        description=f"Store the user's data as soon as you know it: {_quoted(names)}. Leave out unknown values.",
        input_schema={
            "type": "object",
            "properties": {name: _property(schema) for name, schema in schemas.items()},
            "minProperties": 1,
            "additionalProperties": False,
        },
        handler=keep,
        scope="generalist",
        routing="bypass",
        bypass_routing=BypassRouting("It only keeps data of the conversation; there is nothing to route."),
        title="Store the user's data",
        read_only=True,
        updates=names,
        place=place,
    )


def _property(schema: Mapping[str, Any]) -> dict[str, Any]:
    """If the schema refers to definitions, the update check reads it instead."""
    return {} if "$defs" in schema else {key: each for key, each in schema.items() if key != "$schema"}


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
