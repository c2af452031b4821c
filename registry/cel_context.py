"""The `ctx` of CEL expressions, and the fields that a manifest adds to it."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from signoff.contracts.call import CallContext
from signoff.contracts.errors import ConfigError
from signoff.contracts.updates import DATA
from signoff.formats.json_schema import CompiledSchema, compile_schema
from signoff.formats.read_only import read_only

_STANDARD: Final = {
    "": frozenset({"actor", "session", "turn", "tenant", "channel", "route", "step", "user", "now"}),
    "user": frozenset({"id", "person_id", "name", "tier", "roles", "locale"}),
}


@dataclass(frozen=True)
class ContextFields:
    """The context fields that a manifest declares."""

    schemas: Mapping[str, CompiledSchema]
    """By dotted name, such as `user.costCentre` or `project`."""

    @property
    def declared(self) -> dict[str, Mapping[str, Any]]:
        return {name: schema.schema for name, schema in self.schemas.items()}


NO_FIELDS: Final = ContextFields({})


def context_fields(declared: Mapping[str, Mapping[str, Any]] | None) -> ContextFields:
    """Check and compile the manifest's `context`. Raises `ConfigError` with `field` naming the dotted name."""
    schemas: dict[str, CompiledSchema] = {}
    for name, schema in (declared or {}).items():
        _check_name(name, declared or {})
        schemas[name] = compile_schema(schema, field=f"context.{name}", of_object=False)
    return ContextFields(schemas)


def context_mapping(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> dict[str, Any]:
    """Return the `ctx` of CEL expressions.

    Only declared names of `ctx.extra` with valid values are merged, never over a standard field. A missing field makes
    an expression fail, so that approval is needed.
    """
    user = ctx.user
    # Left out for a subscription: `tier != "external"` would be true for "", and an error asks for approval.
    of_person = {"person_id": user.human, "tier": user.tier, "roles": list(user.roles)} if user.is_person else {}
    result: dict[str, Any] = {
        "actor": ctx.actor,
        "session": ctx.session,
        "turn": ctx.turn,
        "tenant": ctx.tenant,
        "channel": ctx.channel,
        "route": ctx.route,
        "step": ctx.step,
        "user": {
            "id": user.user,
            "name": user.name,
            "locale": user.locale,
            **of_person,
        },
    }
    _add_declared(result, ctx, fields)
    return result


def handler_context(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> Mapping[str, Any]:
    """Return the read-only `context` of handlers and hooks: declared fields with valid values, and the requester's
    attributes as `user`. Collected data is left out, even if declared: see `handler_data`.
    """
    result: dict[str, Any] = {}
    _add_declared(result, ctx, fields)
    result.pop(DATA, None)
    return cast(Mapping[str, Any], read_only(result))


def handler_data(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> Mapping[str, Any]:
    """Return the read-only `data` of handlers and hooks: the session's collected data.

    Empty if the manifest declares `data` and the value does not fit: handlers must not see data that rules do not.
    """
    data, schema = ctx.extra.get(DATA), fields.schemas.get(DATA)
    fits = isinstance(data, Mapping) and (schema is None or not schema.check(data))
    return cast(Mapping[str, Any], read_only(data if fits else {}))


def _add_declared(result: dict[str, Any], ctx: CallContext, fields: ContextFields) -> None:
    for name, schema in fields.schemas.items():
        if name in ctx.extra and not schema.check(ctx.extra[name]):
            *parents, last = name.split(".")
            target = result
            for parent in parents:
                target = target.setdefault(parent, {})
            # A copy: judged values outlive the call and must not change with the turn's context.
            target[last] = copy.deepcopy(ctx.extra[name])


def _check_name(name: str, declared: Mapping[str, Any]) -> None:
    *parents, last = name.split(".")
    if not all(part.isidentifier() for part in (*parents, last)):
        raise ConfigError(
            f"context field `{name}` is not a dotted name, such as `user.costCentre`",
            field=f"context.{name}",
            value=name,
        )
    taken = last in _STANDARD.get(".".join(parents), ()) or (parents and parents[0] in _STANDARD[""] - {"user"})
    # Rules that identify a person would read an own field at such a place.
    if taken or (len(parents) > 1 and parents[0] == "user" and parents[1] in _STANDARD["user"]):
        raise ConfigError(
            f"context field `{name}` exists already and cannot be declared again", field=f"context.{name}", value=name
        )
    for other in declared:
        # One of them would be within the value of the other, whose schema does not cover it.
        if other.startswith(f"{name}."):
            raise ConfigError(
                f"context fields `{name}` and `{other}` overlap; declare one of them",
                field=f"context.{name}",
                value=name,
            )
