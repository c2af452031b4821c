"""Selects the tools of one scope of a catalog for displays: a route, a step, an actor or the registry."""

from collections.abc import Iterator, Mapping
from typing import Final

from signoff.contracts.errors import ConfigError, NotFound
from signoff.formats.nearest_name import did_you_mean, quote_name
from signoff.registry.catalog import Catalog
from signoff.registry.scopes.position import LayerName, Position

_ALL: Final = "all"
SCOPES: Final[Mapping[str, tuple[LayerName, ...]]] = {
    "agent": ("agent",),
    "route": ("route",),
    "step": ("step_inline", "step_reference"),
    "registered": ("registry",),
    _ALL: ("step_inline", "step_reference", "route", "agent", "registry"),
}
"""The layers of each scope."""


def tools_in_scope(catalog: Catalog, scope: str, *, actor: str = "", route: str = "", step: str = "") -> frozenset[str]:
    """Return the activities of the tools of a scope, of one actor, route or step, or of all if none is given.

    Hidden tools count too. Raises `ConfigError` for an unknown scope, route or step, `NotFound` for an unknown actor.
    """
    if scope not in SCOPES:
        known = ", ".join(f"`{each}`" for each in SCOPES)
        message = f"there is no scope {quote_name(scope)}; known: {known}{did_you_mean(scope, SCOPES)}"
        raise ConfigError(message, field="scope", value=scope)
    if actor and actor not in catalog.actors:
        raise NotFound(f"there is no actor {quote_name(actor)}{did_you_mean(actor, catalog.actors)}")
    found = {
        tool.activity
        for position in _positions(catalog, actor, route, step)
        for layer in position.layers
        if layer.name in SCOPES[scope]
        for tool in layer.tools.values()
    }
    if not (actor or route or step) and scope in ("registered", _ALL):
        # Include tools that no actor has: a catalog may have no actors.
        found.update(catalog.registry.list())
    return frozenset(found)


def _positions(catalog: Catalog, actor: str, route: str, step: str) -> Iterator[Position]:
    count = 0
    for name in (actor,) if actor else catalog.actors:
        for position in catalog.scopes[name].positions.values():
            if route in ("", position.route) and step in ("", position.step):
                count += 1
                yield position
    if not count and (route or step):
        where = f"actor {quote_name(actor)}" if actor else "any actor"
        raise ConfigError(
            f"there is no route and step {quote_name(f'{route}/{step}')} of {where}", field="route", value=route
        )
