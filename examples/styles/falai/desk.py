"""The refund of the desk, with its context first."""

from typing import Any

from travel_desk import tools

from signoff.registry.handler_adapters import context_first
from signoff.registry.tool_context import ToolContext


@context_first
async def refund(context: ToolContext, args: dict[str, Any]) -> Any:
    """Pay money back for a cancelled booking."""
    return await tools.refund(args["booking"], args["amount"], context)
