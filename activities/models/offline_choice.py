"""Lets the model `offline` answer for models that cannot be used yet, for first tries with `signoff dev`."""

import dataclasses

from signoff.activities.models.drivers import SCRIPTED, build_driver
from signoff.contracts.errors import ConfigError, ModelNotSetUp
from signoff.contracts.names import OFFLINE_MODEL
from signoff.registry.catalog import Catalog
from signoff.registry.catalog_variant import derive


def take_offline(catalog: Catalog) -> tuple[Catalog, tuple[str, ...]]:
    """Return a catalog whose actors have `offline` in place of each model without its key or extra.

    The second value says why, once a reason. A model with any other fault stays: the worker's start reports it.
    """
    lacks = {model: lack for model in catalog.models if (lack := _lack(model))}
    if not lacks:
        return catalog, ()
    actors = [
        dataclasses.replace(actor, model=OFFLINE_MODEL) if actor.model in lacks else actor
        for actor in catalog.actors.values()
    ]
    return derive(catalog, actors=actors), tuple(dict.fromkeys(lacks.values()))


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
