"""Measures the values that an expression reads: counted in the data, or unknown (N)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from signoff.policy.schema_shapes import DataShape

Kind: TypeAlias = Literal["number", "text", "list", "map", "any"]
"""The known kind of a value.

`number` includes everything without a size, such as booleans.
"""

_KINDS: Final[Mapping[str, Kind]] = {
    "int": "number",
    "number": "number",
    "bool": "number",
    "string": "text",
    "list": "list",
    "object": "map",
    "map": "map",
}


@dataclass(frozen=True)
class Extent:
    """The size of one value, or the sums of the sizes of several.

    `length` counts items, entries or bytes of text at the top level. `nodes` counts all values within, including each
    value itself. `text` counts all bytes of text within. `level` is the macro whose variable the value comes from, or 0
    for the data themselves.
    """

    kind: Kind = "number"
    length: int = 0
    nodes: int = 0
    text: int = 0
    level: int = 0

    def child(self, name: str | None) -> "Extent":
        """`name` is `None` for all items together."""
        return self.opaque("any")

    def opaque(self, kind: Kind) -> "Extent":
        """Return the extent of anything within.

        Neither a part nor all parts together exceed the whole.
        """
        return Extent(kind, self.nodes + self.text, self.nodes, self.text, self.level)

    def empty(self) -> "Extent":
        return EmptyExtent(self.kind, level=self.level)

    def at(self, level: int) -> "Extent":
        """Return the same place, read through the variable of a macro."""
        return Extent(self.kind, self.length, self.nodes, self.text, level)


class EmptyExtent(Extent):
    """An empty place without a size."""

    def child(self, name: str | None) -> Extent:
        return EmptyExtent("any", level=self.level)


@dataclass(frozen=True)
class UnknownExtent(Extent):
    """A place in unknown data: N of everything, with the knowledge from its schema."""

    shape: DataShape | None = None

    def child(self, name: str | None) -> Extent:
        """The place below has the same N."""
        inner = None
        if self.shape is not None and name is not None:
            inner = self.shape.step(name) or self.shape.items
        elif self.shape is not None and self.shape.kind != "object":
            inner = self.shape.items
        return unknown_extent(inner, self.nodes, self.nodes, self.text, self.level)

    def empty(self) -> Extent:
        """Its kinds stay known."""
        return UnknownExtent(self.kind, level=self.level, shape=self.shape)

    def at(self, level: int) -> Extent:
        return UnknownExtent(self.kind, self.length, self.nodes, self.text, level, self.shape)


def unknown_extent(shape: DataShape | None, length: int, nodes: int, text: int, level: int = 0) -> UnknownExtent:
    """Return a place of at most these sizes, with `length` items if it is a list.

    A value without a size still takes a place in a list, so its nodes count.
    """
    kind: Kind = "any" if shape is None else _KINDS.get(shape.kind, "any")
    if kind == "number":
        return UnknownExtent(kind, 0, nodes, 0, level, shape)
    return UnknownExtent(kind, text if kind == "text" else length, nodes, text, level, shape)


class CountedExtent(Extent):
    """Places in known data, counted on demand."""

    def __init__(self, values: Sequence[Any], level: int = 0) -> None:
        kinds = {_kind(value) for value in values if value is not None}
        nodes, text = _count(values)
        kind = kinds.pop() if len(kinds) == 1 else "any" if kinds else "number"
        super().__init__(kind, sum(map(_length, values)), nodes, text, level)
        object.__setattr__(self, "_values", values)

    @cached_property
    def _found(self) -> dict[str | None, Extent]:
        return {}

    def child(self, name: str | None) -> Extent:
        """`name` is `None` for all items and entries."""
        extent = self._found.get(name)
        if extent is None:
            values: Sequence[Any] = vars(self)["_values"]
            inside = _items(values) if name is None else _select_key(values, name)
            extent = self._found[name] = CountedExtent(tuple(inside), self.level)
        return extent

    def at(self, level: int) -> Extent:
        return CountedExtent(vars(self)["_values"], level)


def counted_extents(data: Mapping[str, Any]) -> dict[str, Extent]:
    return {name: CountedExtent((value,)) for name, value in data.items()}


def _items(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, Mapping):
            # A macro over a map iterates over its names, an index returns a value: either may be meant here.
            yield from value
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value


def _select_key(values: Iterable[Any], name: str) -> Iterable[Any]:
    return (value[name] for value in values if isinstance(value, Mapping) and name in value)


def _kind(value: Any) -> Kind:
    match value:
        case str():
            return "text"
        case list() | tuple():
            return "list"
        case Mapping():
            return "map"
        case _:
            return "number"


def _length(value: Any) -> int:
    if isinstance(value, str):
        return _bytes(value)
    return len(value) if isinstance(value, list | tuple | Mapping) else 0


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _count(values: Iterable[Any]) -> tuple[int, int]:
    """Endless nesting was rejected before."""
    nodes = text = 0
    stack = list(values)
    while stack:
        value = stack.pop()
        nodes += 1
        if isinstance(value, str):
            text += _bytes(value)
        elif isinstance(value, Mapping):
            stack.extend(value)
            stack.extend(value.values())
        elif isinstance(value, list | tuple):
            stack.extend(value)
    return nodes, text
