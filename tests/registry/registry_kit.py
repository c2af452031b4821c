from typing import Any

from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.message import CallPart
from signoff.contracts.person import Principal
from signoff.registry.actor import Actor
from signoff.registry.hooks import HookContext
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext
from signoff.testing import a_call_context, a_tool_context

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"flight": {"type": "string"}, "totalCost": {"type": "number"}},
    "required": ["flight", "totalCost"],
    "additionalProperties": False,
}


async def handler(args: dict[str, Any], ctx: ToolContext) -> Any:
    """Echo."""
    return {"args": args, "call": ctx.call_id}


async def nothing(context: HookContext, data: dict[str, Any]) -> list[str]:
    return []


def a_tool(name: str = "book_flight", **fields: Any) -> Tool:
    given: dict[str, Any] = {
        "name": name,
        "description": "Books a flight.",
        "input_schema": SCHEMA,
        "handler": handler,
        "scope": "generalist",
        **fields,
    }
    return Tool(**given)


def an_actor(name: str = "desk", **fields: Any) -> Actor:
    return Actor(**{"name": name, "model": "scripted:nowhere:model", **fields})


def pinned(actor: str = "desk", tier: str = "standard", **fields: Any) -> CallContext:
    return a_call_context(**{"actor": actor, "user": Principal(user="guest", tier=tier)} | fields)


def a_call(tool: str = "book_flight", malformed: str = "") -> CallPart:
    return CallPart(call="c1.1", tool=tool, args=Content(inline={}), malformed=malformed)


def a_context(**fields: Any) -> ToolContext:
    return a_tool_context(**{"user": Principal(user="guest"), "idempotency_key": "key"} | fields)
