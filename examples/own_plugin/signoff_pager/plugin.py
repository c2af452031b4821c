"""The plugin `pager`."""

from collections.abc import Mapping

from signoff.channels import Channel
from signoff.plugins import BasePlugin
from signoff_pager.pager import Pager


class PagerPlugin(BasePlugin):
    """Adds the channel `pager`."""

    name = "pager"

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channel by its kind."""
        return {Pager.kind: Pager}
