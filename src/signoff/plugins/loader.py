"""Loads the plugins that the setting `plugins` names. A plugin that fails reports why, and the others load."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any, Final

from signoff.channels.base import Channel
from signoff.channels.channel_loader import KINDS
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import PLUGIN_NAMES
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.formats.visible_text import one_line
from signoff.languages.catalogue import has_text
from signoff.plugins.plugin import Plugin
from signoff.plugins.router import PluginRouter

GROUP: Final = "signoff.plugins"
"""The group of entry points that offer plugins."""
OURS: Final[Mapping[str, str]] = {
    "a2a": "signoff.plugins.a2a.plugin:A2aPlugin",
    "aap": "signoff.plugins.aap.plugin:AapPlugin",
    "apprise": "signoff.plugins.apprise.plugin:ApprisePlugin",
    "authzen": "signoff.plugins.authzen.plugin:AuthzenPlugin",
    "hooks": "signoff.plugins.hooks.plugin:HooksPlugin",
    "mcp": "signoff.plugins.mcp.plugin:McpPlugin",
    "teams": "signoff.plugins.teams.plugin:TeamsPlugin",
    "telegram": "signoff.plugins.telegram.plugin:TelegramPlugin",
    "twilio": "signoff.plugins.twilio.plugin:TwilioPlugin",
}
"""Signoff's own entry points, as in pyproject.toml. Each offers one channel of the plugin's name, or routes."""
OWN_CHANNELS: Final = frozenset({"apprise", "teams", "telegram", "twilio"})
"""The ones with a channel."""
PREFIX: Final = "/plugins"
"""Begins the addresses of other distributions' plugins."""
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,47}\Z")
_WHY_CHARS: Final = 300


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin from the settings, loaded or not."""

    name: str
    """Its name in the settings: `telegram`, or `distribution:name`."""
    channels: Mapping[str, type[Channel]] = field(default_factory=dict)
    routers: Sequence[PluginRouter] = ()
    problem: str = ""
    """One sentence that names the distribution; empty for a plugin that is loaded."""


class Plugins:
    """The plugins from the settings. Each is imported at first use, and no others."""

    def __init__(self, names: Sequence[str] = PLUGIN_NAMES) -> None:
        self._names = tuple(names)
        self._loaded: dict[str, LoadedPlugin] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of channels that plugins add. Loads the plugins of other distributions."""
        kinds = {name for name in self._names if name in OWN_CHANNELS}
        return tuple(sorted(kinds.union(*(each.channels for each in self.foreign()))))

    def channel(self, kind: str) -> type[Channel] | None:
        """Return `None` if no plugin can have this kind.

        Raises `ConfigError` if a plugin has it, or may have it, and is not loaded.
        """
        if kind in OWN_CHANNELS:
            return self._own_channel(kind)
        for plugin in self.foreign():
            if kind in plugin.channels:
                return plugin.channels[kind]
        for entry in entry_points(group=GROUP, name=kind):
            if entry.dist is not None and (name := f"{entry.dist.name}:{kind}") not in self._names:
                raise _refuse(kind, f"add the plugin {quote_name(name)}, which is installed, to SIGNOFF_PLUGINS")
        failed = next((each for each in self.foreign() if each.problem), None)
        if failed is not None:
            raise _refuse(kind, f"no plugin has it, and the plugin `{failed.name}` is not loaded: {failed.problem}")
        return None

    def foreign(self) -> list[LoadedPlugin]:
        """Load the plugins of other distributions, in the order of the settings."""
        return [self._load(name) for name in self._names if name not in OURS]

    def with_routes(self) -> list[LoadedPlugin]:
        """Load the plugins that may have routes, in the order of the settings."""
        return [self._load(name) for name in self._names if name not in OWN_CHANNELS]

    def all(self) -> list[LoadedPlugin]:
        """Keep the order of the settings."""
        return [self._load(name) for name in self._names]

    def _own_channel(self, kind: str) -> type[Channel] | None:
        if kind not in self._names:
            raise _refuse(kind, f"add the plugin `{kind}` to SIGNOFF_PLUGINS")
        plugin = self._load(kind)
        if plugin.problem:
            raise _refuse(kind, plugin.problem)
        return plugin.channels.get(kind)

    def _load(self, name: str) -> LoadedPlugin:
        """The first plugin in the settings that offers a kind of channel, or a prefix, has it."""
        if name not in self._loaded:
            try:
                self._loaded[name] = _own(name) if name in OURS else _foreign(name, self._loaded.values())
            except ConfigError as error:
                self._loaded[name] = LoadedPlugin(name, problem=error.message)
        return self._loaded[name]


def _own(name: str) -> LoadedPlugin:
    return _offered(name, EntryPoint(name, OURS[name], GROUP), "signoff")


def _foreign(setting: str, before: Collection[LoadedPlugin]) -> LoadedPlugin:
    owner, _, name = setting.partition(":")
    plugin = _offered(setting, _entry_point(owner, name), owner)
    kinds = {kind for each in before for kind in each.channels}
    for kind in plugin.channels:
        if _KIND.match(kind) is None:
            raise _problem(owner, f"offers the channel {quote_name(kind)}: use lower case letters, digits and `_`")
        # A plugin must not pass for the inbox, the API or another channel in receipts and in the record.
        if kind in KINDS or kind in OURS or kind in kinds or has_text(f"where.{kind}"):
            raise _problem(owner, f"offers the channel `{kind}`, which exists already")
    prefixes = {router.prefix for each in before for router in each.routers}
    for router in plugin.routers:
        # Its routes can hide none of the core, and the guard knows them by their beginning.
        if router.prefix != f"{PREFIX}/{name}":
            raise _problem(owner, f"offers routes at {quote_name(router.prefix)}: put them below `{PREFIX}/{name}`")
        if router.prefix in prefixes:
            raise _problem(owner, f"offers routes at `{router.prefix}`, which exist already")
    return plugin


def _entry_point(owner: str, name: str) -> EntryPoint:
    try:
        offered = [each for each in distribution(owner).entry_points if each.group == GROUP]
    except PackageNotFoundError:
        raise _problem(owner, "is not installed") from None
    named = [each for each in offered if each.name == name]
    if not named:
        near = did_you_mean(name, [each.name for each in offered])
        raise _problem(owner, f"has no plugin `{name}`{near}")
    if len(named) > 1:
        raise _problem(owner, f"has two plugins `{name}`")
    return named[0]


def _offered(setting: str, entry: EntryPoint, owner: str) -> LoadedPlugin:
    """Raise `ConfigError` for any failure of the plugin's code."""
    try:
        plugin: Plugin = entry.load()()
        name, channels, routers = plugin.name, dict(plugin.channels()), tuple(plugin.routers())
    # An import runs any code, and may even end the process.
    except (Exception, SystemExit) as error:
        why = one_line(f"{type(error).__name__}: {error}".partition("\n")[0], _WHY_CHARS).text
        raise _problem(owner, f"has a plugin `{entry.name}` that fails: {why}") from error
    if name != entry.name:
        raise _problem(owner, f"has a plugin `{entry.name}` whose `name` is {quote_name(str(name))}")
    for kind, made in channels.items():
        offered: Any = made
        if not (isinstance(offered, type) and issubclass(offered, Channel) and getattr(offered, "kind", "") == kind):
            raise _problem(owner, f"offers the channel {quote_name(str(kind))} without a channel class of that `kind`")
    for router in routers:
        checked: Any = router
        if not isinstance(checked, PluginRouter):
            raise _problem(owner, f"offers a {type(checked).__name__} as router: make it with `PluginRouter`")
        if outside := next((each.path for each in router.routes if not router.has_path(each.path)), None):
            raise _problem(owner, f"offers the route {quote_name(outside)}, which is not below `{router.prefix}`")
    return LoadedPlugin(setting, channels, routers)


def _problem(owner: str, what: str) -> ConfigError:
    return ConfigError(f"the distribution `{owner}` {what}", field="plugins", value=owner)


def _refuse(kind: str, why: str) -> ConfigError:
    return ConfigError(f"kind `{kind}`: {why}", field="kind", value=kind)
