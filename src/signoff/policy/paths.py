"""Finds the data that an expression reads, from its syntax."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import lark

from signoff.policy.schema_shapes import DataShape
from signoff.policy.syntax import is_macro, subtrees

Path = tuple[str, ...]
"""A place in the data: `("args", "items", "[]", "sku")`."""
_Tree = lark.Tree[lark.Token]
_Scope = Mapping[str, Path]


@dataclass(frozen=True)
class ReferencedPaths:
    """The places that an expression names."""

    used: frozenset[Path]
    guarded: frozenset[Path]
    """Places inside a `has()`."""


def referenced_paths(tree: _Tree, variables: Mapping[str, DataShape]) -> ReferencedPaths:
    """Include places read through macro variables."""
    used: set[Path] = set()
    guarded: set[Path] = set()
    for path, in_has in _walk(tree, {name: (name,) for name in variables}):
        if in_has:
            guarded.add(path)
            # `has(a.b.c)` itself reads `a.b`: an absent `a.b` is an error within it. A variable always exists.
            if len(path) > 2:
                used.add(path[:-1])
        else:
            used.add(path)
    return ReferencedPaths(frozenset(used), frozenset(guarded))


def reachable_paths(
    tree: _Tree, variables: Mapping[str, DataShape], hidden: Collection[str], of: str
) -> Iterator[tuple[Path, str]]:
    """Yield each place below the variable `of`, guarded or not, and the hidden name it may reach.

    `hidden` are dotted names below it, as used by `approvals.redaction.hide`: items have the name of their list.
    """
    for path, _ in _walk(tree, {name: (name,) for name in variables}):
        # The value selected by an index is known only at evaluation, and may be anything in that place.
        fixed = path[: path.index("[]")] if "[]" in path else path
        for name in sorted(hidden):
            whole = (of, *name.split("."))
            if all(one == other for one, other in zip(fixed, whole, strict=False)):
                yield path, name


def spell(path: Path) -> str:
    """Such as `args.items[0].sku`."""
    return ".".join(path).replace(".[]", "[0]")


def unguarded_paths(place: ReferencedPaths, variables: Mapping[str, DataShape]) -> Iterator[Path]:
    """Yield optional places that are read without a `has()`."""
    for path in sorted(place.used):
        shape: DataShape | None = variables.get(path[0])
        for index, name in enumerate(path[1:], 1):
            if shape is None:
                break
            here = path[: index + 1]
            # A `has()` anywhere counts, even if it does not guard this access. A missed case is an error at evaluation,
            # which asks or denies.
            if name in shape.fields and name not in shape.required and here not in place.guarded:
                yield here
                break
            shape = shape.step(name)


def unchecked_paths(place: ReferencedPaths, variables: Mapping[str, DataShape]) -> Iterator[Path]:
    unchecked = set()
    for path in place.used | place.guarded:
        shape: DataShape | None = variables.get(path[0])
        for index, name in enumerate(path[1:], 1):
            shape = shape.step(name) if shape is not None else None
            if shape is None or shape.kind == "any":
                unchecked.add(path[: index + 1])
                break
    yield from sorted(unchecked)


def _walk(node: _Tree, scope: _Scope) -> Iterator[tuple[Path, bool]]:
    path = _path(node, scope)
    if path is not None:
        yield path, False
    if is_macro(node):
        yield from _walk_macro(node, scope)
    elif node.data == "ident_arg" and str(node.children[0]) == "has":
        yield from _walk_has(node, scope)
    elif path is not None:
        # Only the longest chain of selections counts. An index inside it is a separate expression.
        yield from _indices(node, scope)
    else:
        for child in subtrees(node):
            yield from _walk(child, scope)


def _indices(node: _Tree, scope: _Scope) -> Iterator[tuple[Path, bool]]:
    for position, child in enumerate(subtrees(node)):
        # The first child is the object of the selection, and the only other one is an index.
        yield from _walk(child, scope) if position else _indices(child, scope)


def _walk_has(node: _Tree, scope: _Scope) -> Iterator[tuple[Path, bool]]:
    for arguments in subtrees(node):
        for operand in subtrees(arguments):
            path = _path(operand, scope)
            if path is None:
                yield from _walk(operand, scope)
            else:
                yield path, True
                yield from _indices(operand, scope)


def _walk_macro(node: _Tree, scope: _Scope) -> Iterator[tuple[Path, bool]]:
    target, arguments = subtrees(node)
    yield from _walk(target, scope)
    bound, *bodies = subtrees(arguments)
    name = _identifier(bound)
    over = _path(target, scope)
    # The macro's variable hides an outer variable of the same name, even if its own place is unknown.
    inner = {other: path for other, path in scope.items() if other != name}
    if name is not None and over is not None:
        inner[name] = (*over, "[]")
    for body in bodies:
        yield from _walk(body, inner)


def _path(node: _Tree, scope: _Scope) -> Path | None:
    name = _identifier(node)
    if name is not None:
        return scope.get(name)
    if node.data not in ("member_dot", "member_index"):
        return None
    holder = node.children[0]
    inner = _path(holder, scope) if isinstance(holder, lark.Tree) else None
    if inner is None:
        return None
    return (*inner, str(node.children[1]) if node.data == "member_dot" else "[]")


def _identifier(node: _Tree) -> str | None:
    if node.data == "primary":
        child = node.children[0]
        return _identifier(child) if isinstance(child, lark.Tree) else None
    return str(node.children[0]) if node.data == "ident" else None
