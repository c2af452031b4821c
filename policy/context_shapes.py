"""The variables that expressions may name, and their shapes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from signoff.contracts.errors import ConfigError
from signoff.policy.schema_shapes import Shape, read_schema

_STRING: Final = Shape("string")
_STRINGS: Final = Shape("list", items=_STRING)


def _closed(fields: Mapping[str, Shape]) -> Shape:
    # All are required, as `pinned_cel` of registry/cel_context.py always gives them: rules need no `has()` for them.
    return Shape("object", fields=dict(fields), required=frozenset(fields))


TOOL: Final = _closed(
    {
        "name": _STRING,
        "scope": _STRING,
        "routing": _STRING,
        "tags": _STRINGS,
        "toolset": _STRING,
        "plugin": _STRING,
    }
)
ACTOR: Final = _closed({"name": _STRING, "tags": _STRINGS})
USER: Final = _closed({"id": _STRING, "name": _STRING, "tier": _STRING, "roles": _STRINGS, "locale": _STRING})
CONTEXT: Final = _closed(
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


def context_shape(extra: Mapping[str, Any] | None) -> Shape:
    """`ctx` with your own fields: `extra` maps dotted paths such as `user.costCentre` to JSON Schema.

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


def _grow(shape: Shape, parts: list[str], leaf: Shape, path: str) -> Shape:
    head, rest = parts[0], parts[1:]
    inner = shape.fields.get(head)
    if (not rest and inner is not None) or (rest and inner is not None and inner.kind != "object"):
        raise ConfigError(f"context `{path}` is declared already; choose another name", field=path, value=path)
    grown = _grow(inner or Shape("object"), rest, leaf, path) if rest else leaf
    # Taken as required, though a turn may lack it: reading what is absent is an error, and an error asks or denies.
    return replace(shape, fields={**shape.fields, head: grown}, required=shape.required | {head})
