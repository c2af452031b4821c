"""Normalises and limits the text and syntax of an expression before any engine reads it."""

import re
from collections.abc import Iterator
from typing import Final

import lark

from signoff.contracts.limits import POLICY_CHARS, POLICY_MACROS, POLICY_NESTING, POLICY_OPERATORS

_ROOTED: Final = ("dot_ident", "dot_ident_arg")
MACROS: Final = frozenset({"all", "exists", "exists_one", "filter", "map"})

# Each alternative is linear: every character matches in one way only.
_TOKEN: Final = re.compile(
    r"(?P<string>[bB]?[rR]?(?:"
    r'"""(?:\\[\s\S]|(?!""")[^\\])*"""'
    r"|'''(?:\\[\s\S]|(?!''')[^\\])*'''"
    r'|"(?!"")(?:\\[^\n\r]|[^"\\\n\r])*"'
    r"|'(?!'')(?:\\[^\n\r]|[^'\\\n\r])*'"
    r"))"
    r"|(?P<comment>//[^\n]*)"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<quote>[\"'])|(?P<other>[A-Za-z0-9_]+|[\s\S])"
)


def normalise(text: str) -> str:
    """Newlines become LF."""
    return text.replace("\r\n", "\n").strip()


def text_problem(text: str) -> tuple[str, int]:
    """Return why text is rejected unread, with its column from 1, or 0 without a column. ("", 0) for accepted text."""
    if not text:
        return "it is empty", 0
    if len(text) > POLICY_CHARS:
        return f"it has {len(text)} characters; at most {POLICY_CHARS} are allowed, split it", 0
    depth = 0
    for match in _TOKEN.finditer(text):
        # celpy's lexer takes hours for an unclosed string.
        if match["quote"]:
            return "a string is not closed", match.start() + 1
        depth += bool(match["open"]) - bool(match["close"])
        if depth > POLICY_NESTING:
            return f"nested deeper than {POLICY_NESTING}; split it", match.start() + 1
    # The engines disagree about a CR in a string: celpy accepts it, the other ends the line there.
    return ("a carriage return; write it as one line", text.index("\r") + 1) if "\r" in text else ("", 0)


def tree_problem(tree: lark.Tree[lark.Token]) -> str:
    """Return "" for an accepted expression."""
    if _depth(tree) > POLICY_OPERATORS:
        return f"more than {POLICY_OPERATORS} operators stand within each other; split it"
    if macro_depth(tree) > POLICY_MACROS:
        return f"macros stand more than {POLICY_MACROS} deep; split it"
    if next(tree.find_data("member_object"), None) is not None:
        return "a policy cannot build messages; compare the fields one by one"
    # For a name after a leading point, the first engine reads the policy's variable. celpy and all analysis here read
    # that of a surrounding macro. A text could use a macro's variable to read hidden data or to cause costs that are
    # not counted.
    rooted = next((node for kind in _ROOTED for node in tree.find_data(kind)), None)
    if rooted is not None:
        name = str(rooted.children[0])
        return f"the name `.{name}` begins with a point; write `{name}`"
    return ""


def _depth(tree: lark.Tree[lark.Token]) -> int:
    deepest, stack = 0, [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        stack.extend((child, depth + 1) for child in subtrees(node))
    return deepest


def macro_depth(tree: lark.Tree[lark.Token]) -> int:
    deepest, stack = 0, [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        depth += is_macro(node)
        deepest = max(deepest, depth)
        stack.extend((child, depth) for child in subtrees(node))
    return deepest


def is_macro(node: lark.Tree[lark.Token]) -> bool:
    return node.data == "member_dot_arg" and str(node.children[1]) in MACROS


def subtrees(node: lark.Tree[lark.Token]) -> Iterator[lark.Tree[lark.Token]]:
    return (child for child in node.children if isinstance(child, lark.Tree))
