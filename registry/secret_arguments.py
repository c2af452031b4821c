"""Finds the arguments that a tool's schema declares secret, wherever in it."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

_LEVELS: Final = 8
_MOST: Final = 100
"""Where more nested names than these are secret, or deeper ones, whole arguments are."""
_IN_PLACE: Final = ("items", "contains", "unevaluatedItems", "if", "then", "else", "not")
_EACH_IN_PLACE: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_REFERENCES: Final = ("$ref", "$dynamicRef")
_NAMELESS: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")

_Path: TypeAlias = tuple[str, ...]


def secret_paths(schema: Mapping[str, Any], *, whole: bool = False) -> frozenset[_Path]:
    """Returns the paths that hold all that a checked schema says is `writeOnly`; `()` is arguments without a name.

    References, alternatives and items are followed; what has no name of its own is secret with what it lies in.
    `whole`: arguments need not have the shape that the schema says, so nothing smaller than a whole one is sure.
    """
    levels = 1 if whole else _LEVELS
    # No more are read than show that there are too many: alternatives of alternatives name secrets by the million.
    found = frozenset(islice(_Reader(schema, levels).paths(schema, (), frozenset()), _MOST + 1))
    if len(found) > _MOST:
        found = frozenset(_Reader(schema, 1).paths(schema, (), frozenset()))
    return drop_covered(found)


def drop_covered(paths: Collection[_Path]) -> frozenset[_Path]:
    """Returns `paths` without those that lie in others of them."""
    return frozenset(path for path in paths if not any(path[:end] in paths for end in range(len(path))))


class _Reader:
    """Reads one schema, down to so many levels of names."""

    def __init__(self, root: Mapping[str, Any], levels: int) -> None:
        registry: Registry[Any] = Registry().with_resource(
            "", Resource.from_contents(root, default_specification=DRAFT202012)
        )
        self._resolver = registry.resolver("")
        self._levels = levels

    def paths(self, schema: Any, path: _Path, through: frozenset[str]) -> Iterator[_Path]:
        """Returns the secret paths of the value at `path` by `schema`; `through` are the references followed."""
        if not self._holds(schema):
            return
        if schema.get("writeOnly") or len(path) >= self._levels:
            yield path
            return
        for reference in _references(schema):
            target = self._target(reference)
            if reference not in through:
                yield from self.paths(target, path, through | {reference})
            elif self._holds(target):
                # It goes on without an end: so do the names of what is secret in it.
                yield path
        for each in _in_place(schema):
            yield from self.paths(each, path, through)
        for name, each in _named(schema):
            yield from self.paths(each, (*path, name), through)
        if any(self._holds(each) for each in _nameless(schema)):
            yield path

    def _holds(self, schema: Any) -> bool:
        """Whether anything within is secret, however far down."""
        stack, seen = [schema], set[str]()
        while stack:
            each = stack.pop()
            if not isinstance(each, Mapping):
                continue
            if each.get("writeOnly"):
                return True
            fresh = [reference for reference in _references(each) if reference not in seen]
            seen.update(fresh)
            stack += [self._target(reference) for reference in fresh]
            stack += [*_in_place(each), *_nameless(each), *(inner for _, inner in _named(each))]
        return False

    def _target(self, reference: str) -> Any:
        return self._resolver.lookup(reference).contents


def _references(schema: Mapping[str, Any]) -> list[str]:
    return [schema[key] for key in _REFERENCES if isinstance(schema.get(key), str)]


def _in_place(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (schema[key] for key in _IN_PLACE if key in schema)
    for key in _EACH_IN_PLACE:
        yield from schema.get(key, ())
    yield from schema.get("dependentSchemas", {}).values()


def _named(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from schema.get("properties", {}).items()


def _nameless(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (schema[key] for key in _NAMELESS if key in schema)
    yield from schema.get("patternProperties", {}).values()
