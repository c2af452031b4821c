"""Declares the variables that expressions may name, and their shapes."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from signoff.contracts.errors import ConfigError
from signoff.formats.hours import DAYS
from signoff.policy.schema_shapes import ANY, DataShape, read_schema

_STRING: Final = DataShape("string")
_INTEGER: Final = DataShape("int")
_STRINGS: Final = DataShape("list", items=_STRING)


def _make_closed(fields: Mapping[str, DataShape]) -> DataShape:
    # All are required: `context_mapping` of registry/cel_context.py always gives them, so rules need no `has()`.
    return DataShape("object", fields=dict(fields), required=frozenset(fields))


TOOL: Final = _make_closed(
    {
        "name": _STRING,
        "scope": _STRING,
        "routing": _STRING,
        "tags": _STRINGS,
        "toolset": _STRING,
        "plugin": _STRING,
        "metadata": DataShape("map", items=ANY),
    }
)
ACTOR: Final = _make_closed({"name": _STRING, "scope": _STRING, "tags": _STRINGS})
USER: Final = _make_closed(
    {
        "id": _STRING,
        "person_id": _STRING,
        "name": _STRING,
        "tier": _STRING,
        "roles": _STRINGS,
        "locale": _STRING,
    }
)
CONTEXT: Final = _make_closed(
    {
        "actor": _STRING,
        "session": _STRING,
        "turn": _STRING,
        "tenant": _STRING,
        "channel": _STRING,
        "route": _STRING,
        "step": _STRING,
        "user": USER,
    }
)
"""`ctx` as every turn has it."""
NOW: Final = _make_closed(
    {
        "at": _STRING,
        "date": _STRING,
        "hour": _INTEGER,
        "minute": _INTEGER,
        "weekday": _STRING,
        "zone": _STRING,
    }
)
"""`ctx.now`, which the gates add: the instant at which a call is judged, in plain values."""


def now_record(at: datetime, zone: ZoneInfo) -> dict[str, Any]:
    """Returns `ctx.now` of an instant: `at` in UTC, the rest by the clocks of `zone`; `weekday` is `Mo` to `Su`.

    Both engines are given these values, and never a timestamp of CEL's, on which they differ.
    """
    there = at.astimezone(zone)
    return {
        "at": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "date": f"{there:%Y-%m-%d}",
        "hour": there.hour,
        "minute": there.minute,
        "weekday": DAYS[there.weekday()],
        "zone": str(zone),
    }


def judged_shape(context: DataShape) -> DataShape:
    """Returns `ctx` where calls are judged: with the instant of that."""
    return replace(context, fields={**context.fields, "now": NOW}, required=context.required | {"now"})


def context_shape(extra: Mapping[str, Any] | None) -> DataShape:
    """Returns the shape of `ctx` with your own fields: `extra` maps dotted paths such as `user.costCentre` to JSON
    Schema.

    Raises `ConfigError` when a path is no CEL name or is declared already.
    """
    shape = CONTEXT
    for path, schema in (extra or {}).items():
        parts = path.split(".")
        # Names in CEL are ASCII; Python's identifiers are not.
        if not all(part.isidentifier() and part.isascii() for part in parts):
            raise ConfigError(
                f"`{path}` is not a context path; write names of letters, digits and _ joined by points",
                field=path,
                value=schema,
            )
        shape = _grow(shape, parts, read_schema(schema), path)
    return shape


def _grow(shape: DataShape, parts: list[str], leaf: DataShape, path: str) -> DataShape:
    head, rest = parts[0], parts[1:]
    inner = shape.fields.get(head)
    if (not rest and inner is not None) or (rest and inner is not None and inner.kind != "object"):
        raise ConfigError(f"context `{path}` is declared already; choose another name", field=path, value=path)
    grown = _grow(inner or DataShape("object"), rest, leaf, path) if rest else leaf
    # Taken as required, though a turn may lack it: reading what is absent is an error, and an error asks or denies.
    return replace(shape, fields={**shape.fields, head: grown}, required=shape.required | {head})
