"""Finds the comparisons of arguments that decide an expression, to show them with their values."""

import ast
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import lark

from signoff.approvals.argument_rows import find, step_from_key

_Tree = lark.Tree[lark.Token]
_SIGNS: Final[Mapping[str, str]] = {
    "relation_lt": "<",
    "relation_le": "≤",
    "relation_gt": ">",
    "relation_ge": "≥",
    "relation_eq": "=",
    "relation_ne": "≠",
}
_OPPOSITE: Final[Mapping[str, str]] = {"<": "≥", "≤": ">", ">": "≤", "≥": "<", "=": "≠", "≠": "="}
_SWAPPED: Final[Mapping[str, str]] = {"<": ">", "≤": "≥", ">": "<", "≥": "≤", "=": "=", "≠": "≠"}
_JOINED: Final[Mapping[str, bool]] = {"conditionaland": True, "conditionalor": False}
"""The value that such an expression has only if all its parts have it."""
_ABSENT: Final = object()


class Comparison(NamedTuple):
    """A comparison that is true of the arguments: `amount > 50`."""

    name: str
    """The dotted name of the argument."""
    sign: str
    limit: Decimal | str


def deciding_comparisons(tree: _Tree, args: Mapping[str, Any], *, result: bool) -> Iterator[Comparison]:
    """Yield the comparisons of one argument with a number or text that gave the expression's `result`.

    Leaves out comparisons of other data and of computed values. `tree` is the syntax of a compiled expression.
    """
    if tree.data in _JOINED or tree.data == "paren_expr":
        parts = [part for part in tree.children if isinstance(part, lark.Tree)]
        # If not all parts had to give the result, one did that surely gave it.
        shared = len(parts) == 1 or _JOINED.get(tree.data) is result
        for part in parts:
            if shared or _value(part, args) is result:
                yield from deciding_comparisons(part, args, result=result)
    elif tree.data == "unary" and _is_not(tree):
        yield from deciding_comparisons(_tree(tree.children[1]), args, result=not result)
    elif tree.data == "relation":
        found = _comparison(tree)
        # A part that says otherwise did not decide.
        if found is not None and _is_true(found, args) is result:
            yield found if result else found._replace(sign=_OPPOSITE[found.sign])


def _value(tree: _Tree, args: Mapping[str, Any]) -> bool | None:
    """Return `None` if it depends on more than comparisons."""
    parts = [part for part in tree.children if isinstance(part, lark.Tree)]
    if tree.data == "paren_expr" or (tree.data in _JOINED and len(parts) == 1):
        return _value(parts[0], args)
    if tree.data in _JOINED:
        values, shared = {_value(part, args) for part in parts}, _JOINED[tree.data]
        return not shared if (not shared) in values else shared if values == {shared} else None
    if tree.data == "unary" and _is_not(tree):
        value = _value(_tree(tree.children[1]), args)
        return None if value is None else not value
    found = _comparison(tree) if tree.data == "relation" else None
    return None if found is None else _is_true(found, args)


def _is_not(tree: _Tree) -> bool:
    return isinstance(tree.children[0], lark.Tree) and tree.children[0].data == "unary_not" and len(tree.children) == 2


def _tree(node: Any) -> _Tree:
    return node if isinstance(node, lark.Tree) else lark.Tree("", [])


def _comparison(tree: _Tree) -> Comparison | None:
    if len(tree.children) != 2:
        return None
    head, right = _tree(tree.children[0]), _tree(tree.children[1])
    sign = _SIGNS.get(head.data)
    if sign is None or not head.children:
        return None
    left = _tree(head.children[0])
    for one, other, shown in ((left, right, sign), (right, left, _SWAPPED[sign])):
        name, limit = _argument(one), _literal(other)
        if name and limit is not None:
            return Comparison(name, shown, limit)
    return None


def _argument(node: _Tree) -> str:
    """Return the dotted name below `args`, or ""."""
    keys: list[str] = []
    while node.data == "member_dot":
        keys.append(str(node.children[1]))
        node = _tree(node.children[0])
    is_args = node.data == "primary" and _tree(node.children[0]) == lark.Tree("ident", ["args"])
    return ".".join(map(step_from_key, reversed(keys))) if is_args else ""


def _literal(node: _Tree) -> Decimal | str | None:
    inner = _tree(node.children[0]) if node.data == "primary" and node.children else node
    if inner.data != "literal":
        return None
    try:
        value = ast.literal_eval(str(inner.children[0]))
    except (ValueError, SyntaxError):
        return None
    if isinstance(value, str):
        # Escapes of CEL and Python differ.
        return None if "\\" in str(inner.children[0]) else value
    return Decimal(str(value)) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_true(found: Comparison, args: Mapping[str, Any]) -> bool | None:
    """Return `None` for another type of value."""
    value, limit = find(args, found.name, _ABSENT), found.limit
    if isinstance(limit, str):
        return (value == limit) is (found.sign == "=") if isinstance(value, str) and found.sign in "=≠" else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = Decimal(str(value))
    order = "<" if number < limit else ">" if number > limit else "="
    return order in {"<": "<", "≤": "<=", ">": ">", "≥": ">=", "=": "=", "≠": "<>"}[found.sign]
