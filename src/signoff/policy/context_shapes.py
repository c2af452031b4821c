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
    # All are required: `context_mapping` of registry/cel_context.py sets them, so rules need no `has()`. It leaves some
    # out for a subscription: such a rule fails, and a person is asked.
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
"""`ctx` as set in every turn."""
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
"""`ctx.now`, added by the gates: the time at which a call is judged, in plain values."""


def now_record(at: datetime, zone: ZoneInfo) -> dict[str, Any]:
    """Return `ctx.now` for a time: `at` in UTC, the rest in `zone`.

    `weekday` is `Mo` to `Su`.

    Both engines get these values instead of CEL timestamps, on which they differ.
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
    return replace(context, fields={**context.fields, "now": NOW}, required=context.required | {"now"})


def context_shape(extra: Mapping[str, Any] | None) -> DataShape:
    """`extra` maps dotted paths such as `user.costCentre` to JSON Schema.

    Raises `ConfigError` if a path is not a CEL name or is already declared.
    """
    shape = CONTEXT
    for path, schema in (extra or {}).items():
        parts = path.split(".")
        # Names in CEL are ASCII, unlike Python's identifiers.
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
    # Treated as required although a turn may lack it: reading an absent field is an error, which asks or denies.
    return replace(shape, fields={**shape.fields, head: grown}, required=shape.required | {head})
