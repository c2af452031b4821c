"""The plugin `pager`."""

from collections.abc import Mapping, Sequence

from signoff.channels import Channel
from signoff.plugins import BasePlugin, PluginRouter
from signoff_pager.pager import Pager
from signoff_pager.routes import router


class PagerPlugin(BasePlugin):
    """Adds the channel `pager` and its routes."""

    name = "pager"

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channel by its kind."""
        return {Pager.kind: Pager}

    def routers(self) -> Sequence[PluginRouter]:
        """Return the routes."""
        return [router]
