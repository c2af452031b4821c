"""Finds the arguments that a tool's schema declares secret, wherever in it."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

from signoff.formats.schema_node import SchemaNode

_LEVELS: Final = 8
_MOST: Final = 100
"""Where more nested names than these are secret, or deeper ones, whole arguments are."""

_Path: TypeAlias = tuple[str, ...]


def secret_paths(schema: Mapping[str, Any], *, whole: bool = False) -> frozenset[_Path]:
    """Returns the paths that hold all that a checked schema says is `writeOnly`; `()` is arguments without a name.

    References, alternatives and items are followed; what has no name of its own is secret with what it lies in.
    `whole`: arguments need not have the shape that the schema says, so nothing smaller than a whole one is sure.
    """
    node, levels = SchemaNode.of(schema), 1 if whole else _LEVELS
    # No more are read than show that there are too many: alternatives of alternatives name secrets by the million.
    found = frozenset(islice(_paths(node, levels), _MOST + 1))
    if len(found) > _MOST:
        found = frozenset(_paths(node, 1))
    return drop_covered(found)


def drop_covered(paths: Collection[_Path]) -> frozenset[_Path]:
    """Returns `paths` without those that lie in others of them."""
    return frozenset(path for path in paths if not any(path[:end] in paths for end in range(len(path))))


def _paths(node: SchemaNode, levels: int, path: _Path = (), through: frozenset[str] = frozenset()) -> Iterator[_Path]:
    """Yields the secret paths of the value at `path` by `node`; `through` are the references followed."""
    if not _holds(node):
        return
    if node.keywords.get("writeOnly") or len(path) >= levels:
        yield path
        return
    for reference in node.references:
        target = node.target(reference)
        if target is None:
            # A checked schema has none that leads nowhere: what is not understood may be secret.
            yield path
        elif reference not in through:
            yield from _paths(target, levels, path, through | {reference})
        elif _holds(target):
            # It goes on without an end: so do the names of what is secret in it.
            yield path
    for each in node.of_same_value():
        yield from _paths(each, levels, path, through)
    for name, each in node.fields.items():
        yield from _paths(each, levels, (*path, name), through)
    if any(_holds(each) for each in node.of_nameless()):
        yield path


def _holds(node: SchemaNode) -> bool:
    """Returns whether anything within is secret, however far down."""
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
