"""The interface of a plugin: a named part of an installation that adds channels and routes."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from signoff.channels.base import Channel
from signoff.plugins.router import PluginRouter


class Plugin(Protocol):
    """An entry point of the group `signoff.plugins`. Derive yours from `BasePlugin`."""

    name: ClassVar[str]
    """The name of the entry point."""

    def channels(self) -> Mapping[str, type[Channel]]:
        """Return channels by kind. Each key is the `kind` of its class."""
        ...

    def routers(self) -> Sequence[PluginRouter]: ...


class BasePlugin:
    """A plugin that adds nothing. Override its methods."""

    name: ClassVar[str]

    def channels(self) -> Mapping[str, type[Channel]]:
        return {}

    def routers(self) -> Sequence[PluginRouter]:
        return ()
