"""Suggests a first message for the actors of a catalog."""

import shlex
from collections.abc import Iterator, Sequence

from signoff.activities.models.command_line import example, usage
from signoff.activities.models.drivers import SCRIPTED, build_driver
from signoff.activities.models.offline_model import commands
from signoff.contracts.activity_messages import ModelTool
from signoff.contracts.call import CallContext
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import DEFAULT_ASKER, OFFLINE_MODEL
from signoff.contracts.person import Principal
from signoff.registry.catalog import Catalog
from signoff.registry.gates.inventory import inventory


def ask_command(catalog: Catalog, instead: str = "") -> str:
    """Return a `signoff ask` command that an actor understands, or "" if every actor is external.

    `instead` is the model that replaces scripts.
    """
    return f"signoff ask {shlex.quote(_first_words(catalog, instead))}" if catalog.models else ""


def offline_usage(catalog: Catalog, instead: str = "") -> str:
    """Return the usage line of the first tool that the model `offline` can call; "" if it has no tool."""
    return next((usage(tool) for tool in _offline_tools(catalog, instead)), "")


def _offline_tools(catalog: Catalog, instead: str) -> Iterator[ModelTool]:
    """Yield the tools of the actors with the model `offline`, starting with tools that need approval."""
    asking = {row.tool for row in inventory(catalog) if row.approvers}
    for actor in catalog.actors.values():
        if actor.model == OFFLINE_MODEL or (instead == OFFLINE_MODEL and actor.model.startswith(SCRIPTED)):
            ctx = CallContext(actor=actor.name, session="", turn="", user=Principal(user=DEFAULT_ASKER))
            yield from sorted(commands(catalog.definitions(ctx)), key=lambda tool: tool.name not in asking)


def _first_words(catalog: Catalog, instead: str) -> str:
    for model in catalog.models:
        if OFFLINE_MODEL in (model, instead if model.startswith(SCRIPTED) else ""):
            return next(filter(None, map(example, _offline_tools(catalog, instead))), "help")
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
