"""Writes the patterns of JSON Schema, which are those of ECMA-262, in the syntax of RE2."""

import re
from typing import Final

_LOOKS: Final = {"(?=": True, "(?!": False}
_MOST_LOOKS: Final = 16
"""Each is looked for by itself; RE2 refuses those that are left."""
_ESCAPE: Final = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u(?P<four>[0-9a-fA-F]{4})|\\u\{(?P<code>[0-9a-fA-F]+)\}|\\.",
    re.DOTALL,
)


def split_pattern(pattern: str) -> list[tuple[str, bool]]:
    """Return patterns without look-ahead that mean the same together, each with whether it has to be found.

    `^(?!A)(?=B)C` is found where `^C` and `^(?:B)` are, and `^(?:A)` is not: each takes linear time. Look-around at
    any other place stays, and RE2 refuses it.
    """
    parts: list[tuple[str, bool]] = []
    rest = _ESCAPE.sub(_escape, pattern)
    # With an alternative at the top, `^` and the look-ahead are of its first branch alone.
    if rest.startswith("^") and not _has_branches(rest):
        at = 1
        while (
            len(parts) < _MOST_LOOKS
            and (wanted := _LOOKS.get(rest[at : at + 3])) is not None
            and (end := _end_of_group(rest, at))
        ):
            parts.append((f"^(?:{rest[at + 3 : end]})", wanted))
            at = end + 1
        # A quantifier would be the look-ahead's own.
        if rest[at : at + 1] in tuple("*+?{"):
            return [(rest, True)]
        # What the look-ahead catches may be referred to behind it; RE2 knows no such reference and refuses it.
        rest = f"^{rest[at:]}"
    return [*parts, (rest, True)]


def _escape(found: re.Match[str]) -> str:
    if found["high"]:
        code = 0x10000 + ((int(found["high"], 16) - 0xD800) << 10) + int(found["low"], 16) - 0xDC00
        return f"\\x{{{code:x}}}"
    digits = found["four"] or found["code"]
    return f"\\x{{{digits}}}" if digits else found[0]


def _end_of_group(pattern: str, start: int) -> int:
    """Return where the group that starts there ends; 0 if it does not."""
    for at, depth in _depths(pattern, start):
        if depth == 0:
            return at
    return 0


def _has_branches(pattern: str) -> bool:
    return any(pattern[at] == "|" and depth == 0 for at, depth in _depths(pattern, 0))


def _depths(pattern: str, start: int) -> list[tuple[int, int]]:
    """Return each character outside classes and escapes, with how many groups are open after it."""
    found: list[tuple[int, int]] = []
    depth, at, in_class = 0, start, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        else:
            depth += (char == "(") - (char == ")")
            found.append((at, depth))
        at += 1
    return found
