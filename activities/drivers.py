"""Which driver answers for a model string."""

import importlib

from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog

SCRIPTED = "scripted:"


def build_drivers(catalog: Catalog) -> dict[str, Driver]:
    """A driver for the model of every actor. Raises `ConfigError` for one that cannot be had."""
    return {actor.model: build_driver(actor.model) for actor in catalog.actors.values()}


def build_driver(model: str) -> Driver:
    """`scripted:module:attribute` names an object that completes; anything else is a provider's model."""
    if model.startswith(SCRIPTED):
        return _scripted(model)
    raise ConfigError(f"no driver for the model `{model}`", field="model", value=model)


def _scripted(model: str) -> Driver:
    module_name, _, attribute = model.removeprefix(SCRIPTED).partition(":")
    try:
        found = vars(importlib.import_module(module_name))[attribute]
    except (ImportError, KeyError, ValueError) as error:
        raise ConfigError(f"the model `{model}` cannot be imported: {error}", field="model", value=model) from None
    if not hasattr(found, "complete"):
        raise ConfigError(f"the model `{model}` has no `complete` method", field="model", value=model)
    driver: Driver = found
    return driver
