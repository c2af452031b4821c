"""`respond`: how a model ends its turn. Given to every actor, never registered (B46)."""

from typing import Any, Final, Literal, TypeAlias, cast

from signoff.contracts.names import RESPOND
from signoff.contracts.steps import Offered
from signoff.registry.schema import compile_schema

RespondState: TypeAlias = Literal["complete", "clarifying", "awaiting"]

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What the user reads."},
        "state": {
            "type": "string",
            "enum": ["complete", "clarifying", "awaiting"],
            "default": "complete",
            "description": "complete: done. clarifying: you ask the user something. awaiting: something is to follow.",
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
_COMPILED: Final = compile_schema(_SCHEMA, tool_name=RESPOND)

RESPOND_OFFER: Final = Offered(
    name=RESPOND,
    description="Answer the user and end your turn. Call it alone: other calls beside it are not executed.",
    parameters=_SCHEMA,
)


def parse_respond(args: Any) -> tuple[RespondState, str] | str:
    """State and text of a `respond` payload, or the sentence that tells the model what is wrong with it."""
    problems = _COMPILED.check(args)
    if problems:
        listed = "; ".join(f"`{path}` {message}" if path else message for path, message in problems)
        return f"respond was not understood: {listed}. Call respond again with a `text`."
    return cast(RespondState, args.get("state", "complete")), args["text"]
