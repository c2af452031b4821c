"""Checks the updates in a tool's result: declared names and valid values. No I/O."""

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
    """The checked updates of a result."""

    updates: Updates = NO_UPDATES
    ignored: tuple[str, ...] = ()
    """Undeclared names."""
    problem: str = ""
    """Why no update may be applied, or ""."""


def accept_updates(
    tool: Tool,
    scopes: ActorScopes,
    fields: ContextFields,
    ctx: CallContext,
    data: Mapping[str, Any],
    context: Mapping[str, Any],
) -> AcceptedUpdates:
    """Check the `data` and `context`, plain JSON, that a call in `ctx` wants to change.

    Only names in the tool's `updates` count: data that a step of its actor collects, and context fields of the
    manifest. One invalid value rejects all. Messages repeat no value.
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
    """Raise `ConfigError` if a tool updates a name that no step collects and no context declares."""
    known = {*fields.schemas, *(name for each in scopes for name in each.collected)}
    for tool, name in ((each, name) for each in tools for name in each.updates):
        if name not in known:
            near = did_you_mean(name, known)
            message = f"tool `{tool.name}` updates `{name}`, which no step collects and no `context` declares{near}"
            raise ConfigError(message, tool_name=tool.name, field="updates", value=name)


def _problems(mine: Updates, scopes: ActorScopes, fields: ContextFields, ctx: CallContext) -> Iterator[str]:
    for name, value in mine.data.items():
        # Null deletes the collected value.
        yield from _misfits(f"{DATA}.{name}", None if value is None else scopes.schemas.get(name), value)
    for name, value in mine.context.items():
        yield from _misfits(name, fields.schemas[name], value)
    # A manifest may declare `data` as a whole: then the combined data must fit.
    whole = fields.schemas.get(DATA)
    if whole is not None and mine.data:
        held = ctx.extra.get(DATA)
        yield from _misfits(DATA, whole, {**(held if isinstance(held, Mapping) else {}), **mine.data})
    if mine.size > SESSION_UPDATES_BYTES:
        yield f"the changes are over {SESSION_UPDATES_BYTES} bytes"


def _misfits(name: str, schema: CompiledSchema | None, value: Any) -> Iterator[str]:
    # It becomes part of `ctx`: beyond the limits, every rule would fail.
    why = bounds_problem(value)
    if why:
        yield f"the value of `{name}` is {why}"
    for problem in () if schema is None else schema.check(value):
        place = f" at `{problem.path}`" if problem.path else ""
        yield f"the value of `{name}`{place} {english(problem.message)}"
