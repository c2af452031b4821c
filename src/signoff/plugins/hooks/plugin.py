"""The plugin `hooks`."""

from collections.abc import Sequence
from typing import ClassVar

from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.hooks.routes import router


class HooksPlugin(BasePlugin):
    """Adds the routes of coding agents' hooks."""

    name: ClassVar[str] = "hooks"

    def routers(self) -> Sequence[PluginRouter]:
        """Return the router."""
        return (router,)
