"""Predicates that turn a few kilobytes of arguments into gigabytes or minutes."""

from typing import Any, Final

_FIVE: Final = "(args.items + args.items + args.items + args.items + args.items)"
_SUM = "x"
for _ in range(7):
    # As a tree: a flat sum is deeper than a parser reads.
    _SUM = f"({_SUM}+{_SUM})"
_LIST: Final = f"[{','.join(['x'] * 42)}]"
_THEN: Final = f"x == '' ? x : {_SUM}"
_MAP: Final = ", ".join(f"{key}: x" for key in range(18))
_LISTS: Final = f"[args.items].map(x, {_LIST}).map(x, {_LIST})"
_MAPS: Final = f"[args.items].map(x, {{{_MAP}}}).map(x, {{{_MAP}}})"

BOMBS: Final = {
    "a list of lists of texts": "args.items.map(x, args.items.map(y, args.memo + args.memo)).size() > 0",
    "a text for each item": f"{_FIVE}.map(x, args.memo + args.memo).size() > 0",
    "a list copied for each item": f"{_FIVE}.map(x, x).size() > 0",
    "lists joined for each item": "args.items.map(x, args.items + args.items + args.items + args.items).size() > 0",
    "a text multiplied twice": f"[args.memo].map(x, {_SUM}).map(x, {_SUM}).size() == 1",
    "a list multiplied twice": f"[args.items].map(x, {_SUM}).map(x, {_SUM}).size() == 1",
    "a text multiplied under conditions": f"[args.memo].map(x, {_THEN}).map(x, {_THEN}) != []",
    "lists that hold one list often": f"{_LISTS} == {_LISTS}",
    "maps that hold one list often": f"{_MAPS} == {_MAPS}",
    "all items for each item": "args.items.all(x, args.items == args.items)",
    "a search for each item": "args.items.all(x, !args.memo.contains(args.memo + 'b'))",
    "a pattern for each item": "args.items.all(x, args.memo.matches(args.memo))",
}

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "integer"}},
        "memo": {"type": "string"},
        "to": {"type": "string"},
    },
    "required": ["items", "memo", "to"],
}


def large(to: str) -> dict[str, Any]:
    """1,900 values, 50 KiB of text: any model may propose this."""
    return {"items": list(range(1_900)), "memo": "m" * 51_000, "to": to}
