"""Finds the arguments that a tool's schema declares secret, at any depth."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from signoff.formats.schema_node import SchemaNode

_LEVELS: Final = 8
_MOST: Final = 100
"""The limit of nested secret names. Beyond it, or deeper, whole arguments are secret."""

_Path: TypeAlias = tuple[str, ...]


def secret_paths(schema: Mapping[str, Any], *, whole: bool = False) -> frozenset[_Path]:
    """Return the paths that cover everything marked `writeOnly` in a checked schema.

    `()` stands for arguments without declared names. References, alternatives and items are followed. An unnamed secret
    part makes its whole container secret. With `whole`, arguments need not match the schema, so only whole arguments
    are safe.
    """
    node, levels = SchemaNode.of(schema), 1 if whole else _LEVELS
    # Read just enough to detect that there are too many: nested alternatives can name millions of secrets.
    found = frozenset(islice(_paths(node, levels), _MOST + 1))
    if len(found) > _MOST:
        found = frozenset(_paths(node, 1))
    return drop_covered(found)


def drop_covered(paths: Collection[_Path]) -> frozenset[_Path]:
    return frozenset(path for path in paths if not any(path[:end] in paths for end in range(len(path))))


def _paths(node: SchemaNode, levels: int, path: _Path = (), through: frozenset[str] = frozenset()) -> Iterator[_Path]:
    """`through` are the references followed."""
    if not _holds(node):
        return
    if node.keywords.get("writeOnly") or len(path) >= levels:
        yield path
        return
    for reference in node.references:
        target = node.target(reference)
        if target is None:
            # A checked schema has no dangling reference. If one is not understood, it may be secret.
            yield path
        elif reference not in through:
            yield from _paths(target, levels, path, through | {reference})
        elif _holds(target):
            # The reference is endless, and so are the names of its secrets.
            yield path
    for each in node.of_same_value():
        yield from _paths(each, levels, path, through)
    for name, each in node.fields.items():
        yield from _paths(each, levels, (*path, name), through)
    if any(_holds(each) for each in node.of_nameless()):
        yield path


def _holds(node: SchemaNode) -> bool:
    stack, seen = [node], set[str]()
    while stack:
        each = stack.pop()
        if each.keywords.get("writeOnly"):
            return True
        for reference in each.references:
            if reference in seen:
                continue
            seen.add(reference)
            target = each.target(reference)
            if target is None:
                return True
            stack.append(target)
        stack += [*each.of_same_value(), *each.of_nameless(), *each.fields.values()]
    return False
