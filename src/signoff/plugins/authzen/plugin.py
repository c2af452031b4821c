"""The plugin `authzen`."""

from collections.abc import Sequence
from typing import ClassVar

from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.authzen.routes import configuration, router


class AuthzenPlugin(BasePlugin):
    """Adds the routes of policy enforcement points."""

    name: ClassVar[str] = "authzen"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the routers."""
        return (configuration, router)
