"""Tools as records in a registry, and as a module that the app includes."""

from typing import Any

import signoff
from signoff.tools import (
    BypassRouting,
    Capabilities,
    Step,
    ToolResolver,
    UsageLimit,
    create_tool_registry,
    ok_results,
    success_results,
)

SCHEMA = {"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}


@ok_results
async def count(args: dict[str, Any], context: signoff.ToolContext) -> dict[str, Any]:
    return {"ok": True, "value": 7}


@success_results
async def order(args: dict[str, Any], context: signoff.ToolContext) -> dict[str, Any]:
    return {"success": False, "error": "sold out"}


COUNT = signoff.Tool(
    name="count",
    description="Count an article.",
    input_schema=SCHEMA,
    handler=count,
    scope="generalist",
    usage_limit=UsageLimit(count=100, per="user", period=3600.0),
    capabilities=Capabilities(network=("depot.example.org",)),
)
ORDER = signoff.Tool(
    name="order",
    description="Order an article.",
    input_schema=SCHEMA,
    handler=order,
    scope="specialist",
    justification="Only the clerk orders.",
    routing="bypass",
    bypass_routing=BypassRouting(reason="The depot has its own queue."),
)
registry: ToolResolver = create_tool_registry([COUNT, ORDER])
tools = signoff.Tools()


@tools.tool(requires_approval=True)
async def close_account(customer: str) -> str:
    """Close the account of a customer."""
    return f"closed {customer}"


app = signoff.App(model="openai:gpt-5", registry=registry)
app.include(tools, prefix="depot_")
steps = [Step(name="choose", prompt="Ask for the article.", tools=("count",))]
app.actor("clerk", tools=["count", "order", close_account]).route("stock", steps=steps)
