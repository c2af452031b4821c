"""The plugin `apprise`."""

from collections.abc import Mapping
from typing import ClassVar

from signoff.channels import Channel
from signoff.plugins import BasePlugin
from signoff.plugins.apprise.apprise import Apprise


class ApprisePlugin(BasePlugin):
    """Adds the channel `apprise`."""

    name: ClassVar[str] = "apprise"

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channel."""
        return {Apprise.kind: Apprise}
