"""Suggests a first message for the actors of a catalog."""

import shlex
from collections.abc import Sequence

from signoff.activities.models.drivers import SCRIPTED, build_driver
from signoff.contracts.errors import ConfigError
from signoff.registry.catalog import Catalog
from signoff.registry.gates.inventory import inventory


def ask_command(catalog: Catalog, instead: str = "") -> str:
    """Return a `signoff ask` command that an actor understands; "" where every actor is external.

    `instead` is the model that answers in the place of scripts.
    """
    return f"signoff ask {shlex.quote(_first_words(catalog, instead))}" if catalog.models else ""


def _first_words(catalog: Catalog, instead: str) -> str:
    for model in catalog.models:
        if model.startswith(SCRIPTED) and not instead:
            try:
                examples: Sequence[str] = vars(build_driver(model)).get("examples", ())
            except ConfigError:
                # A gateway without the project's modules still shows its inbox.
                continue
            if examples:
                return examples[0]
    rows = sorted(inventory(catalog), key=lambda row: not row.approvers)
    return next((row.title or row.tool for row in rows), "hello")
