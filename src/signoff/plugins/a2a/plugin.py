"""The plugin `a2a`."""

from collections.abc import Sequence
from typing import ClassVar

from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.a2a.routes import first_card, router


class A2aPlugin(BasePlugin):
    """Adds the routes of other agents that speak A2A."""

    name: ClassVar[str] = "a2a"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the routers."""
        return (first_card, router)
