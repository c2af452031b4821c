"""The framework's own tool that reads on in a result that was cut; nobody registers it."""

from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.contracts.names import READ_REST
from signoff.registry.tool import BypassRouting, Tool
from signoff.registry.tool_context import ToolContext

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
    description="Read on in a result that was too long. Use the handle and the start that you were told with it.",
    input_schema=_SCHEMA,
    handler=_nowhere,
    scope="specialist",
    justification="A handle is good in one turn of one actor only.",
    routing="bypass",
    bypass_routing=BypassRouting("It reads what the same turn was given already; there is nothing to route."),
    title="Read on in a long result",
    read_only=True,
    # What was cut may be text from outside, so whatever is read here is fenced as such.
    untrusted_output=True,
)
"""The declaration; a worker puts its own handler into it."""
