"""The interface of a plugin: a named part of an installation that adds channels."""

from collections.abc import Mapping
from typing import ClassVar, Protocol

from signoff.channels.base import Channel


class Plugin(Protocol):
    """An entry point of the group `signoff.plugins`. Derive yours from `BasePlugin`."""

    name: ClassVar[str]
    """The name of the entry point."""

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return the channels that the plugin adds, by kind. Each key is the `kind` of its class."""
        ...


class BasePlugin:
    """A plugin that adds nothing. Override what yours adds."""

    name: ClassVar[str]

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return no channels."""
        return {}
