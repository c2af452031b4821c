"""The changes of the desk: registered for reuse by id, the refund with its context first."""

from travel_desk import tools

from signoff import ToolContext, tool
from signoff.tools import ToolRegistryBuilder, context_first

registry = ToolRegistryBuilder()
cancel = registry.register(tool(scope="generalist", tags=["changes"], requires_approval=True)(tools.cancel_booking))


@context_first
async def refund(context: ToolContext, args: dict[str, str]) -> object:
    """Pay money back for a cancelled booking."""
    return await tools.refund(args["booking"], float(args["amount"]), context)
