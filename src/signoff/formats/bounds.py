"""Limits the size and form of data before any engine sees it."""

import math
from collections.abc import Iterator
from typing import Any, Final

from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import MAX_DEPTH, MAX_INTEGER, MAX_NAME_CHARS, MAX_PATHS_CHARS, MAX_VALUES
from signoff.languages.remarks import english

SEND_IN_PARTS: Final = "split them over several calls, or name a file or record that holds them"
"""The remedy for too many or too large arguments."""


def bounds_problem(value: Any) -> str:
    """Return why `value` is not JSON of acceptable size, in English, or "". See `bounds_remark`."""
    return english(bounds_remark(value))


def bounds_remark(value: Any) -> Words:
    """Return why `value` is not JSON of acceptable size, or "".

    Only JSON types, at most 32 deep and 2,000 values, names of 256 characters, integers within ±(2^53-1), finite
    numbers, no lone surrogates: RFC 8785 can encode these, and both engines read them alike. The paths of all values
    together have at most `MAX_PATHS_CHARS` characters, because a card shows each value's full path.
    """
    # Use an explicit stack: measuring the depth by recursion could itself overflow.
    stack: list[tuple[Any, int, int]] = [(value, 1, 0)]
    seen = chars = 0
    while stack:
        item, depth, path = stack.pop()
        seen += 1
        chars += path
        if chars > MAX_PATHS_CHARS:
            return Remark.of("bound.paths", n=str(MAX_PATHS_CHARS))
        if depth > MAX_DEPTH:
            return Remark.of("bound.depth", n=str(MAX_DEPTH))
        if isinstance(item, dict | list | tuple):
            # Counts values seen, waiting and inside this one, before any of them is touched.
            if seen + len(stack) + len(item) > MAX_VALUES:
                return Remark.of("bound.values", n=str(MAX_VALUES))
            if isinstance(item, dict) and (why := _odd_key(item)):
                return why
            stack.extend((child, depth + 1, path + length) for child, length in _children(item))
        elif why := _odd_scalar(item):
            return why
    return ""


def bounds_remedy(why: str) -> str:
    is_size = why.startswith(("more than", "names that lead"))
    return SEND_IN_PARTS if is_size else "send it as a string or leave it out"


def _children(item: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[Any, int]]:
    """Yield each value inside, and the number of characters that its name or index adds to its path."""
    if isinstance(item, dict):
        return ((child, len(key) + 1) for key, child in item.items())
    return ((child, len(str(place)) + 1) for place, child in enumerate(item))


def _odd_key(item: dict[Any, Any]) -> Words:
    for key in item:
        if not isinstance(key, str):
            return "a name that is not a string"
        if len(key) > MAX_NAME_CHARS:
            return Remark.of("bound.name", n=str(MAX_NAME_CHARS))
        if not _is_unicode(key):
            return "a name that is not Unicode (a lone surrogate)"
    return ""


def _odd_scalar(item: Any) -> str:
    match item:
        # Check this before `int()`: in Python a boolean is one.
        case None | bool():
            return ""
        case int():
            # RFC 8785 writes numbers as doubles. Beyond this, different integers may have the same digest.
            return "" if abs(item) <= MAX_INTEGER else "an integer outside ±(2^53-1)"
        case float():
            return "" if math.isfinite(item) else "a number that is not finite"
        case str():
            return "" if _is_unicode(item) else "text that is not Unicode (a lone surrogate)"
        case _:
            return f"a {type(item).__name__}, which is not a JSON type"


def _is_unicode(text: str) -> bool:
    try:
        # `json.loads` accepts escapes of lone surrogates such as `\ud800`, which UTF-8, and therefore RFC 8785, lacks.
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
