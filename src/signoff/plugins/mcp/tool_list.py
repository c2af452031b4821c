"""Describes tools to MCP clients: their schemas, and hints of what a call does, as their declarations say. Pure."""

from collections.abc import Iterable
from typing import Any

from signoff.calls import ToolListing
from signoff.formats.object_schema import as_object


def list_tools(visible: Iterable[ToolListing], *, takes_choices: bool = False) -> list[dict[str, Any]]:
    """Returns the tools that Signoff runs, sorted by name, so that the list of one client is as that of another.

    A tool that its agent runs itself is left out: by MCP nobody is handed a permit. Without `takes_choices` a schema
    that chooses between schemas at its top is told as one object, as clients of the older versions refuse it.
    """
    found = {tool.name: _describe(tool, takes_choices=takes_choices) for tool in visible if tool.runs_here}
    return [found[name] for name in sorted(found)]


def _describe(tool: ToolListing, *, takes_choices: bool) -> dict[str, Any]:
    # No `outputSchema`: a result may have been cut, shortened or masked for its reader, and need not fit any more.
    found: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema if takes_choices else as_object(tool.schema),
        "annotations": {
            "readOnlyHint": tool.read_only,
            "destructiveHint": not tool.read_only,
            "idempotentHint": tool.idempotent,
        },
    }
    return {**found, "title": tool.title} if tool.title else found
