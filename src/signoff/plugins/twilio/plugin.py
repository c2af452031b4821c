"""The plugin `twilio`."""

from collections.abc import Mapping
from typing import ClassVar

from signoff.channels import Channel
from signoff.plugins import BasePlugin
from signoff.plugins.twilio.twilio import Twilio


class TwilioPlugin(BasePlugin):
    """Adds the channel `twilio`."""

    name: ClassVar[str] = "twilio"

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channel."""
        return {Twilio.kind: Twilio}
