"""Replaces models of providers by the model `offline`, for first trials and tests."""

import dataclasses
from collections.abc import Collection

from signoff.activities.models.drivers import SCRIPTED, build_driver
from signoff.contracts.errors import ConfigError, ModelNotSetUp
from signoff.contracts.names import OFFLINE_MODEL
from signoff.registry.catalog import Catalog
from signoff.registry.catalog_variant import derive


def take_offline(catalog: Catalog) -> tuple[Catalog, tuple[str, ...]]:
    """Replace each model without its key or extra by `offline`.

    The second value holds each reason once. A model with any other fault stays, and the worker's start reports it.
    """
    lacks = {model: lack for model in catalog.models if (lack := _lack(model))}
    return _answer_offline(catalog, lacks), tuple(dict.fromkeys(lacks.values()))


def replace_providers(catalog: Catalog) -> Catalog:
    """Replace each provider's model by `offline`. Scripts stay."""
    return _answer_offline(catalog, [model for model in catalog.models if not model.startswith(SCRIPTED)])


def _answer_offline(catalog: Catalog, models: Collection[str]) -> Catalog:
    actors = [
        dataclasses.replace(actor, model=OFFLINE_MODEL) if actor.model in models else actor
        for actor in catalog.actors.values()
    ]
    return derive(catalog, actors=actors) if models else catalog


def _lack(model: str) -> str:
    if model.startswith(SCRIPTED):
        return ""
    try:
        build_driver(model)
    except ModelNotSetUp as error:
        return error.lack
    except ConfigError:
        return ""
    return ""
