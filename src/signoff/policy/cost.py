"""Bounds the cost of an expression in steps and bytes, and its growth with the data.

Each cost is a polynomial of sizes, without subtraction. Therefore a macro over many items costs at most the sum of two
parts. One is its body once for all items taken together. The other is its body without data, once for each item. So
passes over lists within lists count once, and only data read again for each item multiply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import lark
import re2

from signoff.policy.extent import EmptyExtent, Extent, unknown_extent
from signoff.policy.schema_shapes import DataShape
from signoff.policy.syntax import is_macro, subtrees

# In units, `STEP` of which make a step: about 5 us of cel-python, by far the slower engine.
STEP: Final = 8_192
"""Units in a step, which is one evaluation of one syntax node."""
_NODE: Final = 512
"""Units to compare or copy one value."""
_BYTE: Final = 2
"""Units to compare, copy or decode one byte of text."""
_ROUND: Final = 4 * STEP
"""Units of one round of a macro, without its body."""
_APPENDED: Final = 16
"""Units, and bytes, for each value in a list that is copied to append one."""
_VALUE_BYTES: Final = 64
"""Bytes of one value. Measured: 32 in cel-expr-python, 56 in cel-python."""
_VISIT_BYTES: Final = 256
_ROUND_BYTES: Final = 1_024
_PROGRAM: Final = 1 << 14
"""Units for one byte of text under an unknown pattern, from RE2's largest program."""

# Wider than any coefficient: an expression of 2,000 characters doubles its data at most a few hundred times.
_DIGITS: Final = 4_096
_CONSTANT: Final = 1 << 30
"""The level of a literal: deeper than any macro, because its size is known."""
_NUMBERS: Final = frozenset({"int", "uint", "double", "bool", "timestamp", "duration", "type", "has", "size"})
_COPIES: Final = frozenset({"string", "bytes", "dyn"})

_Tree: TypeAlias = lark.Tree[lark.Token]
_Scope: TypeAlias = Mapping[str, Extent]


@dataclass(frozen=True)
class Cost:
    """The cost of an evaluation: work in units and memory in bytes.

    A step has `STEP` units. `joins` is not 0 if a `+` within a macro may join texts or lists.
    """

    units: int = 0
    memory: int = 0
    joins: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.units + other.units, self.memory + other.memory, self.joins + other.joins)

    def times(self, count: int) -> "Cost":
        return Cost(self.units * count, self.memory * count, self.joins * count)

    @property
    def steps(self) -> int:
        """The number of steps, rounded up."""
        return -(-self.units // STEP)


@dataclass(frozen=True)
class CostGrowth:
    """The growth of an expression's cost with N, the size of its data.

    The cost grows with N to the power of `degree`. `factor` is the largest coefficient of a power of N, in units or
    bytes.
    """

    degree: int
    factor: int


@dataclass(frozen=True)
class _Value:
    cost: Cost
    extent: Extent


def cost_of(tree: _Tree, sizes: _Scope) -> Cost:
    """Return the maximum cost over variables of these sizes."""
    whole = _visit(tree, sizes, 0)
    result = whole.extent
    # A result that is no boolean is read out completely: a list that contains another twice is then twice as large.
    return whole.cost + _cost_of_copying(result, _VALUE_BYTES)


def growth(tree: _Tree, variables: Mapping[str, DataShape]) -> CostGrowth:
    # Kronecker's substitution: if N exceeds every coefficient, the digits of the sum are those of the polynomial.
    large = 1 << _DIGITS
    cost = cost_of(tree, {name: unknown_extent(shape, large, large, large) for name, shape in variables.items()})
    digits = [*_digits(cost.units), *_digits(cost.memory)]
    return CostGrowth(max(power for power, _ in digits), max(digit for _, digit in digits))


def sizes_at_most(variables: Mapping[str, DataShape], *, nodes: int, text: int) -> dict[str, Extent]:
    return {name: unknown_extent(shape, nodes, nodes, text) for name, shape in variables.items()}


def _digits(total: int) -> list[tuple[int, int]]:
    result, power = [(0, 0)], 0
    while total:
        digit = total & ((1 << _DIGITS) - 1)
        if digit:
            result.append((power, digit))
        total >>= _DIGITS
        power += 1
    return result


def _visit(node: _Tree, scope: _Scope, level: int) -> _Value:
    match node.data:
        case "literal":
            return _Value(_VISIT, _literal(str(node.children[0])))
        case "ident":
            return _Value(_VISIT, scope.get(str(node.children[0]), EmptyExtent(level=_CONSTANT)))
        case "member_dot":
            holder = _visit(_tree(node, 0), scope, level)
            return _Value(holder.cost + _VISIT, holder.extent.child(str(node.children[1])))
        case "member_index":
            return _index(node, scope, level)
        case "member_dot_arg":
            return _macro(node, scope, level) if is_macro(node) else _call(node, scope, level)
        case "ident_arg":
            return _call(node, scope, level)
        case "relation":
            return _compare(node, scope, level)
        case "addition":
            return _add(node, scope, level)
        case "list_lit" | "map_lit":
            return _build(node, scope, level)
        case "expr":
            return _choose(node, scope, level)
        case "primary":
            inner = _visit(_tree(node, 0), scope, level)
            return _Value(inner.cost + _VISIT, inner.extent)
        case _:
            # Logic and arithmetic: the operands are evaluated, and the result has no size.
            parts = [_visit(child, scope, level) for child in subtrees(node)]
            return _Value(_sum(parts) + _VISIT, Extent(nodes=1))


_VISIT: Final = Cost(STEP, _VISIT_BYTES)


def _literal(token: str) -> Extent:
    if token[-1] not in "\"'":
        return Extent(nodes=1, level=_CONSTANT)
    size = len(token.encode())
    return Extent("text", size, 1, size, _CONSTANT)


def _index(node: _Tree, scope: _Scope, level: int) -> _Value:
    holder, key = (_visit(child, scope, level) for child in subtrees(node))
    name = _find_name(_tree(node, 1))
    # In a map, a key that is not text is searched among all names.
    search = 0 if key.extent.kind == "text" or holder.extent.kind == "list" else holder.extent.length * _NODE
    cost = holder.cost + key.cost + _VISIT + Cost(key.extent.text * _BYTE + search)
    return _Value(cost, holder.extent.child(name))


def _find_name(index: _Tree) -> str | None:
    """Return `None` for an index that is no literal name."""
    inner = _tree(index, 0) if index.data == "primary" and isinstance(index.children[0], lark.Tree) else index
    token = str(inner.children[0]) if inner.data == "literal" else ""
    plain = token[1:-1]
    return plain if len(token) > 1 and token[0] in "'\"" and token[:3] != token[0] * 3 and "\\" not in plain else None


def _compare(node: _Tree, scope: _Scope, level: int) -> _Value:
    operator = _tree(node, 0)
    left, right = _visit(_tree(operator, 0), scope, level), _visit(_tree(node, 1), scope, level)
    one, two = left.extent, right.extent
    if operator.data == "relation_in":
        # Each comparison ends with the smaller of the two values, so all of them together read no more than the list.
        work = _cost_of_copying(two) + Cost(two.length * _NODE + one.text * _BYTE)
    elif "number" in (one.kind, two.kind):
        work = Cost()
    else:
        # So does this one. The choice of the smaller side must not depend on sizes, or the sum over many items would be
        # wrong.
        work = _cost_of_copying(one) if one.level > two.level else _cost_of_copying(two)
        work = _cost_of_copying(one) + _cost_of_copying(two) if one.level == two.level != _CONSTANT else work
    return _Value(left.cost + right.cost + _VISIT.times(2) + Cost(work.units), Extent(nodes=1))


def _add(node: _Tree, scope: _Scope, level: int) -> _Value:
    operator = _tree(node, 0)
    left, right = _visit(_tree(operator, 0), scope, level), _visit(_tree(node, 1), scope, level)
    cost = left.cost + right.cost + _VISIT.times(2)
    one, two = left.extent, right.extent
    if operator.data == "addition_sub" or "number" in (one.kind, two.kind):
        return _Value(cost, Extent(nodes=1))
    joined, joins = _join(one, two), int(level > 0)
    if joined.kind == "text":
        return _Value(cost + Cost(joined.length * _BYTE, joined.length, joins), joined)
    copied = Cost(joined.length * _NODE + joined.text * _BYTE, joined.length * _VALUE_BYTES + joined.text, joins)
    return _Value(cost + copied, joined)


def _join(one: Extent, two: Extent) -> Extent:
    kind = one.kind if one.kind == two.kind else "any"
    length, nodes, text = one.length + two.length, one.nodes + two.nodes, one.text + two.text
    return Extent(kind, length, nodes, text, min(one.level, two.level))


def _build(node: _Tree, scope: _Scope, level: int) -> _Value:
    inner = next(subtrees(node), None)
    parts = [] if inner is None else [_visit(child, scope, level) for child in subtrees(inner)]
    nodes = 1 + sum(part.extent.nodes for part in parts)
    text = sum(part.extent.text for part in parts)
    made = Cost(len(parts) * _NODE, (len(parts) + 1) * _VALUE_BYTES)
    kind: Final = "list" if node.data == "list_lit" else "map"
    deepest = min((part.extent.level for part in parts), default=_CONSTANT)
    # The keys of a map are compared with each other.
    keys = Cost() if kind == "list" else Cost(len(parts) * text * _BYTE)
    return _Value(_sum(parts) + _VISIT.times(2) + made + keys, Extent(kind, len(parts), nodes, text, deepest))


def _choose(node: _Tree, scope: _Scope, level: int) -> _Value:
    condition, one, two = (_visit(child, scope, level) for child in subtrees(node))
    # Count both branches: an upper bound of either, which never shrinks as the data grow.
    return _Value(condition.cost + one.cost + two.cost + _VISIT, _join(one.extent, two.extent))


def _call(node: _Tree, scope: _Scope, level: int) -> _Value:
    method = node.data == "member_dot_arg"
    name = str(node.children[1 if method else 0])
    trees = list(subtrees(node))
    operands = trees[:1] if method else []
    operands += [each for group in trees[1 if method else 0 :] for each in subtrees(group)]
    parts = [_visit(child, scope, level) for child in operands]
    sizes = [part.extent for part in parts]
    cost = _sum(parts) + _VISIT.times(2)
    text = sum(each.text for each in sizes)
    if name == "contains" and len(parts) == 2:
        # Naive search, in wide registers.
        return _Value(cost + Cost(text * _BYTE + sizes[0].text * sizes[1].text), Extent(nodes=1))
    if name == "includes" and len(parts) == 2:
        # A list's items are compared as by `in`, and a text is searched as by `contains`. Before that, the first engine
        # copies both to Python.
        holder, item = sizes
        searched = 0 if holder.kind == "list" else holder.text * item.text
        work = Cost(holder.nodes * _NODE + text * _BYTE + searched)
        return _Value(cost + _cost_of_copying(holder, _VALUE_BYTES) + work, Extent(nodes=1))
    if name in ("lowerAscii", "upperAscii") and len(parts) == 1:
        one = sizes[0]
        made = Extent("text", one.text, one.nodes, one.text, one.level)
        return _Value(cost + Cost(text * _BYTE + one.nodes * _NODE, text + one.nodes * _VALUE_BYTES), made)
    if name == "split" and len(parts) == 2:
        # A list of as many texts as there are characters, plus one.
        count = sizes[0].text + 1
        made = Extent("list", count, count + 1, sizes[0].text, sizes[0].level)
        return _Value(cost + Cost(count * _NODE + text * _BYTE, (count + 1) * _VALUE_BYTES + text), made)
    if name == "join" and len(parts) == 2:
        items, separator = sizes
        joined = items.text + items.nodes * separator.text
        work = Cost(items.nodes * _NODE + (items.text + joined) * _BYTE, joined + _VALUE_BYTES)
        copied = _cost_of_copying(items, _VALUE_BYTES)
        return _Value(cost + copied + work, Extent("text", joined, 1, joined, min(items.level, separator.level)))
    if name == "matches" and len(parts) == 2:
        return _Value(cost + _cost_of_matching(operands[1], *sizes), Extent(nodes=1))
    # A number as text has at most 32 characters. Bytes become text of the same size or an error.
    if name in _COPIES and parts:
        one = sizes[0]
        grown = one if name == "dyn" else Extent("text", one.text + 32, one.nodes + 1, one.text + 32, one.level)
        return _Value(cost + Cost(text * _BYTE, text + _VALUE_BYTES), grown)
    is_number = name in _NUMBERS or name.startswith(("get", "startsWith", "endsWith"))
    nodes = sum(each.nodes for each in sizes)
    result = Extent(nodes=1) if is_number else Extent("any", nodes + text + 1, nodes + 1, text)
    return _Value(cost + Cost(text * _BYTE, text), result)


def _cost_of_matching(pattern: _Tree, subject: Extent, program: Extent) -> Cost:
    spelled = _find_name(pattern)
    if spelled is not None:
        # RE2 takes linear time in the text. If a program fills its memory, RE2 executes each step for all its states.
        return Cost(subject.text * (_BYTE + _program_size(spelled) // 4))
    return Cost((subject.text + 1) * program.text * _BYTE + subject.text * _PROGRAM + program.text * STEP)


@lru_cache(maxsize=256)
def _program_size(pattern: str) -> int:
    options = re2.Options()
    options.log_errors = False
    try:
        return int(re2.compile(pattern, options).programsize)
    except re2.error:
        return 0


def _macro(node: _Tree, scope: _Scope, level: int) -> _Value:
    name = str(node.children[1])
    over = _visit(_tree(node, 0), scope, level)
    arguments = list(subtrees(_tree(node, 2)))
    variable = next(iter(arguments[0].find_data("ident")), None)
    bound = str(variable.children[0]) if variable is not None else ""
    count, inside = over.extent.length, over.extent.child(None).at(level + 1)
    once, all_items = Cost(_ROUND, _ROUND_BYTES), Cost()
    result = Extent(nodes=1)
    for body in arguments[1:]:
        # See the module's docstring: no data for each item, and all items together once.
        at_nothing = _visit(body, {**scope, bound: inside.empty()}, level + 1)
        at_all = _visit(body, {**scope, bound: inside}, level + 1)
        once, all_items = once + at_nothing.cost, all_items + at_all.cost
        result = _gather(count, at_nothing.extent, at_all.extent)
    cost = over.cost + _VISIT + once.times(count) + all_items
    if name not in ("map", "filter"):
        return _Value(cost, Extent(nodes=1))
    appended = Cost(count * count * _APPENDED, count * count * _APPENDED + count * _VALUE_BYTES)
    return _Value(cost + appended, over.extent if name == "filter" else result)


def _gather(count: int, at_nothing: Extent, at_all: Extent) -> Extent:
    nodes = 1 + count * (1 + at_nothing.nodes) + at_all.nodes
    return Extent("list", count, nodes, count * at_nothing.text + at_all.text)


def _cost_of_copying(extent: Extent, memory: int = 0) -> Cost:
    return Cost(extent.nodes * _NODE + extent.text * _BYTE, (extent.nodes * memory + extent.text) if memory else 0)


def _sum(parts: list[_Value]) -> Cost:
    return sum((part.cost for part in parts), Cost())


def _tree(node: _Tree, index: int) -> _Tree:
    child = node.children[index]
    if not isinstance(child, lark.Tree):
        raise TypeError(f"`{node.data}` has no tree at {index}")
    return child
