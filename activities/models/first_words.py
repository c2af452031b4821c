"""Suggests a first message for the actors of a catalog."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from signoff.activities.models.command_line import Command, NoCommand, example, read_command, usage
from signoff.activities.models.drivers import SCRIPTED, build_driver
from signoff.activities.models.offline_model import commands
from signoff.contracts.activity_messages import ModelTool, Tally
from signoff.contracts.call import CallContext
from signoff.contracts.content import Content
from signoff.contracts.errors import ConfigError
from signoff.contracts.message import CallPart
from signoff.contracts.names import DEFAULT_ASKER, OFFLINE_MODEL
from signoff.contracts.person import Principal
from signoff.registry.catalog import Catalog
from signoff.registry.gates.inventory import inventory
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.hooks import Permission

_EXAMPLE_NUMBERS: Final = (50, 500, 5_000, 1)
"""The numbers of examples: a rule may approve small amounts by itself."""


def ask_command(catalog: Catalog, instead: str = "", *, at: datetime | None = None) -> str:
    """Return the command of `first_message`, or ""."""
    return first_message(catalog, instead, at=at).command


class FirstMessage(NamedTuple):
    """A message and the actor that understands it, "" for the only one."""

    text: str = ""
    actor: str = ""

    @property
    def command(self) -> str:
        """The `signoff ask` command that sends it, or ""."""
        named = f" --actor {self.actor}" if self.actor else ""
        return f"signoff ask {shlex.quote(self.text)}{named}" if self.text else ""


def first_message(catalog: Catalog, instead: str = "", *, at: datetime | None = None) -> FirstMessage:
    """Return an empty message if every actor is external.

    `instead` is the model that replaces scripts. For the model `offline`, the call needs approval at `at` if possible.
    """
    first = _first_message(catalog, instead, at) if catalog.models else FirstMessage()
    several = sum(actor.external is None for actor in catalog.actors.values()) > 1
    return first if several else first._replace(actor="")


def offline_usage(catalog: Catalog, instead: str = "") -> str:
    """Return the usage line of the first tool that the model `offline` can call, or ""."""
    return next((usage(tool) for _, tool in _offline_tools(catalog, instead)), "")


def _offline_tools(catalog: Catalog, instead: str) -> Iterator[tuple[CallContext, ModelTool]]:
    """Yield contexts and tools of the actors with the model `offline`, starting with tools that need approval."""
    asking = {row.tool for row in inventory(catalog) if row.approvers}
    for actor in catalog.actors.values():
        if actor.model == OFFLINE_MODEL or (instead == OFFLINE_MODEL and actor.model.startswith(SCRIPTED)):
            ctx = CallContext(actor=actor.name, session="", turn="", user=Principal(user=DEFAULT_ASKER))
            tools = sorted(commands(catalog.definitions(ctx)), key=lambda tool: tool.name not in asking)
            yield from ((ctx, tool) for tool in tools)


def _offline_message(catalog: Catalog, instead: str, at: datetime | None) -> FirstMessage:
    """Return a line whose call needs approval, else any line that calls a tool, else `help`."""
    tools = list(_offline_tools(catalog, instead))
    lines = ((ctx, tool, example(tool, number)) for ctx, tool in tools for number in _EXAMPLE_NUMBERS)
    asking = (
        FirstMessage(line, ctx.actor)
        for ctx, tool, line in lines
        if _asks(catalog, ctx, read_command(line, [tool]), at)
    )
    calling = (FirstMessage(line, ctx.actor) for ctx, tool in tools if (line := example(tool)))
    return next(asking, None) or next(calling, None) or FirstMessage("help", _first_actor(catalog))


def _asks(catalog: Catalog, ctx: CallContext, command: Command | NoCommand, at: datetime | None) -> bool:
    if isinstance(command, NoCommand):
        return False
    call = CallPart(call="c1.1", tool=command.tool, args=Content(inline=command.args))
    backends = frozenset(kind for tool in catalog.every_tool for kind in tool.capabilities.kinds)
    known = GateFacts(backends=backends, permission=Permission(allowed=True), spent={}, at=at)
    return judge(catalog, ctx, call, command.args, Tally(), known=known).kind == "ask"


def _first_actor(catalog: Catalog, *models: str) -> str:
    own = [actor for actor in catalog.actors.values() if actor.external is None]
    return next((actor.name for actor in own if actor.model in models), own[0].name if own else "")


def _first_message(catalog: Catalog, instead: str, at: datetime | None) -> FirstMessage:
    for model in catalog.models:
        if OFFLINE_MODEL in (model, instead if model.startswith(SCRIPTED) else ""):
            return _offline_message(catalog, instead, at)
        if model.startswith(SCRIPTED) and not instead:
            try:
                examples: Sequence[str] = vars(build_driver(model)).get("examples", ())
            except ConfigError:
                # A gateway without the project's modules still shows its inbox.
                continue
            if examples:
                return FirstMessage(examples[0], _first_actor(catalog, model))
    rows = sorted(inventory(catalog), key=lambda row: not row.approvers)
    return FirstMessage(next((row.title or row.tool for row in rows), "hello"), _first_actor(catalog))
