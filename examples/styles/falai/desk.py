"""The refund of the desk, with its context first."""

from typing import Any

from travel_desk import tools

from signoff import ToolContext
from signoff.tools import context_first


@context_first
async def refund(context: ToolContext, args: dict[str, Any]) -> Any:
    """Pay money back for a cancelled booking."""
    return await tools.refund(args["booking"], args["amount"], context)
