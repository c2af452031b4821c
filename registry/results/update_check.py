"""Checks the updates of a tool's result: names that it declares, of values that fit. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from signoff.contracts.call import CallContext
from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import SESSION_UPDATES_BYTES
from signoff.contracts.updates import DATA, NO_UPDATES, Updates
from signoff.formats.bounds import bounds_problem
from signoff.formats.json_schema import CompiledSchema
from signoff.formats.nearest_name import did_you_mean
from signoff.languages.remarks import english
from signoff.registry.cel_context import ContextFields
from signoff.registry.scopes.actor_scopes import ActorScopes
from signoff.registry.tool import Tool


class AcceptedUpdates(NamedTuple):
    """The updates of a result after the check."""

    updates: Updates = NO_UPDATES
    """What may be applied."""
    ignored: tuple[str, ...] = ()
    """Names that nobody declared."""
    problem: str = ""
    """Why nothing may be applied; empty where something may."""


def accept_updates(
    tool: Tool,
    scopes: ActorScopes,
    fields: ContextFields,
    ctx: CallContext,
    data: Mapping[str, Any],
    context: Mapping[str, Any],
) -> AcceptedUpdates:
    """Checks the `data` and `context`, plain JSON, that a call in `ctx` wishes to change. Pure.

    Names count that the tool declares in `updates`: of data those that a step of its actor collects, of the context
    those of the manifest. One value that does not fit lets all of them fail. Messages repeat no value.
    """
    mine = Updates(
        data={name: each for name, each in data.items() if name in tool.updates and name in scopes.collected},
        context={name: each for name, each in context.items() if name in tool.updates and name in fields.schemas},
    )
    wished = Updates(data=dict(data), context=dict(context))
    ignored = tuple(name for name in wished.names if name not in mine.names)
    problem = next(_problems(mine, scopes, fields, ctx), "")
    return AcceptedUpdates(NO_UPDATES, ignored, problem) if problem else AcceptedUpdates(mine, ignored)


def check_updates(tools: Iterable[Tool], scopes: Iterable[ActorScopes], fields: ContextFields) -> None:
    """Raises `ConfigError` where one of `tools` would update what no step of any actor collects and nobody declares."""
    known = {*fields.schemas, *(name for each in scopes for name in each.collected)}
    for tool, name in ((each, name) for each in tools for name in each.updates):
        if name not in known:
            near = did_you_mean(name, known)
            message = f"tool `{tool.name}` updates `{name}`, which no step collects and no `context` declares{near}"
            raise ConfigError(message, tool_name=tool.name, field="updates", value=name)


def _problems(mine: Updates, scopes: ActorScopes, fields: ContextFields, ctx: CallContext) -> Iterator[str]:
    for name, value in mine.data.items():
        # Null forgets what was collected.
        yield from _misfits(f"{DATA}.{name}", None if value is None else scopes.schemas.get(name), value)
    for name, value in mine.context.items():
        yield from _misfits(name, fields.schemas[name], value)
    # A manifest may declare `data` as a whole: then what they come to together has to fit.
    whole = fields.schemas.get(DATA)
    if whole is not None and mine.data:
        held = ctx.extra.get(DATA)
        yield from _misfits(DATA, whole, {**(held if isinstance(held, Mapping) else {}), **mine.data})
    if mine.size > SESSION_UPDATES_BYTES:
        yield f"what it changes is over {SESSION_UPDATES_BYTES} bytes"


def _misfits(name: str, schema: CompiledSchema | None, value: Any) -> Iterator[str]:
    # It becomes part of `ctx`: out of bounds there, every rule that is asked would be an error.
    why = bounds_problem(value)
    if why:
        yield f"the value of `{name}` is {why}"
    for problem in () if schema is None else schema.check(value):
        place = f" at `{problem.path}`" if problem.path else ""
        yield f"the value of `{name}`{place} {english(problem.message)}"
