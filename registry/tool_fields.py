"""Tools by their declared fields: hashes, gates and errors."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from signoff.formats.declared_fields import DeclaredField, declared_fields
from signoff.formats.nearest_name import did_you_mean


class FieldProblem(NamedTuple):
    """An error in a declaration."""

    field: str
    """The field, nested ones dotted."""
    value: object
    why: str
    """The text after the tool's name."""
    first_site: str = ""
    """For a duplicate, the place of the other declaration, `file:line`."""


def id_and_title(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Make a `name` next to an `id` the title: other designs show it to people."""
    if given.get("id") is None or given.get("name") in (None, given["id"]) or "title" in given:
        return given
    return {**{key: value for key, value in given.items() if key != "name"}, "title": given["name"]}


def by_own_names(cls: type, given: Mapping[str, Any]) -> Mapping[str, Any] | FieldProblem:
    """Replace camelCase and other designs' names by the field names of `cls`.

    Returns a problem if two names of one field differ. Unknown names stay.
    """
    fields = declared_fields(cls)
    if given.keys() <= fields.keys():
        return given
    words = {alias: name for name, each in fields.items() for alias in (to_camel(name), *each.spec.aliases)}
    written: dict[str, str] = {}
    given = id_and_title(given)
    for key in given:
        first = written.setdefault(words.get(key, key), key)
        if given[first] != given[key]:
            return FieldProblem(key, given[key], f"has `{first}` and `{key}`, which mean the same and differ; keep one")
    return {name: given[key] for name, key in written.items()}


def hashed_content(tool: Any) -> dict[str, object]:
    """Return the part under a catalog's hash apart from its definition: values that differ from defaults.

    A field of a later version thus changes only the hashes of tools that use it.
    """
    values = vars(tool)
    return {
        name: _plain(values[name])
        for name, field in declared_fields(type(tool)).items()
        if field.spec.hashed == "catalog" and values[name] is not field.default and values[name] != field.default
    }


def dropped_gate(tool: Any, over: Iterable[Any]) -> str:
    """Return the first field that is a gate of a tool in `over` and is missing in `tool`, or "".

    Functions count as equal only if identical: the behaviour of others cannot be compared.
    """
    gates = [field for field in declared_fields(type(tool)).values() if field.spec.shadow]
    dropped = (field.name for each in over for field in gates if not _keeps(field, vars(tool), vars(each)))
    return next(dropped, "")


def _keeps(field: DeclaredField, own: Mapping[str, Any], shadowed: Mapping[str, Any]) -> bool:
    mine, theirs = own[field.name], shadowed[field.name]
    if theirs == field.default or mine == theirs:
        return True
    # Compared as text: two equivalent spellings are rejected, but no wider value passes.
    return field.spec.shadow == "subset" and bool(mine) and set(mine) <= set(theirs)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float):
        # RFC 8785 encodes both alike, and `canonical_json` is faster without floats.
        return int(value) if value.is_integer() else value
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_defaults=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = ((field, vars(value)[field.name]) for field in dataclasses.fields(value))
        return {field.name: _plain(each) for field, each in given if each != field.default}
    if callable(value):
        return True
    if isinstance(value, Mapping):
        return {name: True if callable(each) else each for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def field_problem(cls: type, error: ErrorDetails) -> FieldProblem:
    loc = [str(each) for each in error["loc"]]
    name = loc[0] if loc else ""
    fields, kind = declared_fields(cls), error["type"]
    if kind == "unexpected_positional_argument":
        return FieldProblem("", error["input"], "takes its fields by name, such as `Tool(name=..., ...)`")
    if name not in fields:
        near = did_you_mean(name, fields)
        return FieldProblem(
            name, error["input"], f"has no field `{name}`{near}; fields are {', '.join(f'`{f}`' for f in fields)}"
        )
    field = fields[name]
    if kind in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return FieldProblem(name, None, f"is declared without `{name}`, which every tool has")
    if kind == "hook":
        return FieldProblem(name, error["input"], error["msg"])
    value = error["input"]
    allowed = [str(each) for each in _literals(field.info.annotation)]
    if allowed:
        listed = ", ".join(f"`{each}`" for each in allowed)
        return FieldProblem(
            name, value, f"has `{name}` `{value}`; allowed: {listed}{did_you_mean(str(value), allowed)}"
        )
    return FieldProblem(name, value, f"needs `{name}` to be {field.spec.form or _form(field.info.annotation)}")


def _literals(annotation: Any) -> Iterator[object]:
    for each in get_args(annotation):
        if each is not type(None):
            yield from _literals(each) if get_args(each) else ((each,) if isinstance(each, str) else ())


def _form(annotation: Any) -> str:
    first = annotation if not get_args(annotation) else get_args(annotation)[0]
    words: Mapping[Any, str] = {bool: "true or false", str: "text", int: "a whole number", float: "a number"}
    if first in words and annotation is first:
        return words[first]
    return "a list of names" if "tuple" in str(annotation) else f"a `{getattr(first, '__name__', first)}`"
