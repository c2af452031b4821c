"""The plugin `telegram`."""

from collections.abc import Mapping
from typing import ClassVar

from signoff.channels import Channel
from signoff.plugins import BasePlugin
from signoff.plugins.telegram.telegram import Telegram


class TelegramPlugin(BasePlugin):
    """Adds the channel `telegram`."""

    name: ClassVar[str] = "telegram"

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channel."""
        return {Telegram.kind: Telegram}
