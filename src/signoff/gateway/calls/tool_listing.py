"""Lists tools to external agents."""

from signoff.calls.agent_calls import ToolListing
from signoff.contracts.call import CallContext
from signoff.contracts.person import Person
from signoff.gateway.calls.call_proposer import CHANNEL
from signoff.gateway.deps import GatewayDeps
from signoff.people.directory import principal_of, turn_context
from signoff.registry.tool import Tool


def list_tools_of(deps: GatewayDeps, tenant: str, agent: str, person: Person) -> list[ToolListing]:
    """Returns the tools that an agent may see for a person."""
    ctx = CallContext(
        actor=agent,
        session="",
        turn="",
        tenant=tenant,
        channel=CHANNEL,
        user=principal_of(person, deps.people),
        extra=turn_context(person, {}),
    )
    return [listing_of(each) for each in deps.catalog.tool_view(ctx).visible()]


def listing_of(tool: Tool) -> ToolListing:
    """Returns what an agent is told of a tool."""
    return ToolListing(
        tool.name,
        tool.title,
        tool.description,
        tool.schema.schema,
        read_only=tool.read_only,
        idempotent=tool.read_only or tool.idempotent,
        runs_here=tool.runs == "signoff",
    )
