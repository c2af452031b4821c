"""The plugin `mcp`."""

from collections.abc import Sequence
from typing import ClassVar

from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.mcp.endpoint import resource, router


class McpPlugin(BasePlugin):
    """Adds the routes of external agents that speak MCP."""

    name: ClassVar[str] = "mcp"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the routers."""
        return (router, resource)
