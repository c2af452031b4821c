"""Builds the driver of each model string."""

import importlib
from collections.abc import Mapping

from signoff.activities.models.model_settings import model_settings
from signoff.activities.models.offline_model import OfflineModel
from signoff.contracts.completion import Driver
from signoff.contracts.errors import ConfigError, ModelNotSetUp
from signoff.contracts.names import OFFLINE_MODEL
from signoff.keys.secrets import SecretProvider
from signoff.registry.catalog import Catalog
from signoff.registry.extras import PROVIDERS, extra_of_model, missing_extra

SCRIPTED = "scripted:"
_PROVIDER = "signoff.activities.models.pydantic_ai_driver"


async def build_drivers(catalog: Catalog, secrets: SecretProvider, *, instead: str = "") -> Mapping[str, Driver]:
    """Build a driver for every model of the actors.

    `instead` replaces the scripted ones. Raises `ConfigError` for an unusable model (typo, missing extra, key or
    secret), `Unavailable` if the source of a secret does not answer.
    """
    for actor in catalog.actors.values():
        # Check only: a missing secret then fails the start and not a later turn.
        await model_settings(actor, secrets)
    chosen = {model: instead if instead and model.startswith(SCRIPTED) else model for model in catalog.models}
    return {model: build_driver(name) for model, name in chosen.items()}


def build_driver(model: str) -> Driver:
    """Build the driver of `scripted:module:attribute`, `offline` or `provider:model`.

    Raises `ModelNotSetUp` if the key or the extra of a known provider is missing, `ConfigError` for every other fault.
    """
    if model == OFFLINE_MODEL:
        return OfflineModel()
    extra = extra_of_model(model)
    if not extra:
        return _make_scripted(model)
    if lacks := missing_extra(extra):
        message = f"the model `{model}` {lacks}"
        provider, _, name = model.partition(":")
        if provider in PROVIDERS and name:
            raise ModelNotSetUp(message, f"the extra `{extra}` is not installed", field="model", value=model)
        raise ConfigError(message, field="model", value=model)
    driver: Driver = importlib.import_module(_PROVIDER).ProviderModel(model)
    return driver


def _make_scripted(model: str) -> Driver:
    module_name, _, attribute = model.removeprefix(SCRIPTED).partition(":")
    try:
        found = vars(importlib.import_module(module_name))[attribute]
    except (ImportError, KeyError, ValueError) as error:
        raise ConfigError(f"the model `{model}` cannot be imported: {error}", field="model", value=model) from None
    if not hasattr(found, "complete"):
        raise ConfigError(f"the model `{model}` has no `complete` method", field="model", value=model)
    driver: Driver = found
    return driver
