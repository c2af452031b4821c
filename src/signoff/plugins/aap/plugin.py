"""The plugin `aap`."""

from collections.abc import Sequence
from typing import ClassVar

from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.aap.routes import router


class AapPlugin(BasePlugin):
    """Adds the routes of the Agent Approval Protocol."""

    name: ClassVar[str] = "aap"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the router."""
        return (router,)
