"""The interface for authors of plugins."""

from typing import TYPE_CHECKING

from signoff.formats.lazy_names import lazy_names

if TYPE_CHECKING:
    from signoff.plugins.plugin import BasePlugin as BasePlugin
    from signoff.plugins.plugin import Plugin as Plugin
    from signoff.plugins.router import PluginRouter as PluginRouter

_MODULES = {
    "BasePlugin": "signoff.plugins.plugin",
    "Plugin": "signoff.plugins.plugin",
    "PluginRouter": "signoff.plugins.router",
}
__all__ = [*_MODULES]
__getattr__ = lazy_names(__name__, _MODULES)
