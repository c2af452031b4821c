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
    """The schema of each by its dotted name, such as `user.costCentre` or `project`."""

    @property
    def declared(self) -> dict[str, Mapping[str, Any]]:
        """The plain schemas by dotted name, as declared."""
        return {name: schema.schema for name, schema in self.schemas.items()}


NO_FIELDS: Final = ContextFields({})


def context_fields(declared: Mapping[str, Mapping[str, Any]] | None) -> ContextFields:
    """Checks and compiles the manifest's `context`. Raises `ConfigError` with `field` naming the dotted name."""
    schemas: dict[str, CompiledSchema] = {}
    for name, schema in (declared or {}).items():
        _check_name(name, declared or {})
        schemas[name] = compile_schema(schema, field=f"context.{name}", of_object=False)
    return ContextFields(schemas)


def context_mapping(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> dict[str, Any]:
    """Returns the `ctx` mapping of CEL expressions.

    Of `ctx.extra` only declared names with valid values are merged, never over a standard field (P18);
    what is left out is absent, so that an expression over it is an error and a person is asked.
    """
    user = ctx.user
    # Left out for a subscription: `tier != "external"` would be true of "", and an error has a person asked.
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
    """Returns the `context` of handlers and hooks: the fields that the manifest declares, with valid values, by name,
    and under `user` the attributes of who asked (F02). It cannot be changed.

    Collected data is left out, also where it is declared: that is `handler_data`.
    """
    result: dict[str, Any] = {}
    _add_declared(result, ctx, fields)
    result.pop(DATA, None)
    return cast(Mapping[str, Any], read_only(result))


def handler_data(ctx: CallContext, fields: ContextFields = NO_FIELDS) -> Mapping[str, Any]:
    """Returns the `data` of handlers and hooks: what the session has collected (F02). It cannot be changed.

    Empty where the manifest declares `data` and what is there does not fit, so that nobody sees what rules do not.
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
            # A copy: what is judged is kept beyond the call, and must not change with what the turn's context holds.
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
    # A field of one's own in such a place would be read by rules that ask who somebody is.
    if taken or (len(parents) > 1 and parents[0] == "user" and parents[1] in _STANDARD["user"]):
        raise ConfigError(
            f"context field `{name}` is there already and cannot be declared anew", field=f"context.{name}", value=name
        )
    for other in declared:
        # One of them would lie within the other's value, where its schema says nothing of it.
        if other.startswith(f"{name}."):
            raise ConfigError(
                f"context fields `{name}` and `{other}` overlap; declare one of them",
                field=f"context.{name}",
                value=name,
            )
