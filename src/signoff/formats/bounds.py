"""Limits how large and how odd data may be before any engine sees it."""

import math
from collections.abc import Iterator
from typing import Any, Final

from signoff.contracts.content import Remark, Words
from signoff.contracts.limits import MAX_DEPTH, MAX_INTEGER, MAX_NAME_CHARS, MAX_PATHS_CHARS, MAX_VALUES
from signoff.languages.remarks import english

SEND_IN_PARTS: Final = "split them over several calls, or name a file or record that holds them"
"""What helps where arguments are too many or too large."""


def bounds_problem(value: Any) -> str:
    """Returns why `value` is not JSON of bearable size, in English, as `bounds_remark`; "" when it is."""
    return english(bounds_remark(value))


def bounds_remark(value: Any) -> Words:
    """Returns why `value` is not JSON of bearable size, in a few words; "" when it is.

    JSON types only, at most 32 deep and 2,000 values, names of 256 characters, integers within ±(2^53-1), finite
    numbers, no lone surrogates: what RFC 8785 can write and two engines read alike. The names that lead to all values
    have at most `MAX_PATHS_CHARS` together: a card tells each value's whole path.
    """
    # A stack of our own: what measures depth must not be what breaks on it, as recursion would.
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
            # Those met, those that wait and those within: known before any of them is touched.
            if seen + len(stack) + len(item) > MAX_VALUES:
                return Remark.of("bound.values", n=str(MAX_VALUES))
            if isinstance(item, dict) and (why := _odd_key(item)):
                return why
            stack.extend((child, depth + 1, path + length) for child, length in _children(item))
        elif why := _odd_scalar(item):
            return why
    return ""


def bounds_remedy(why: str) -> str:
    """Return what the sender can do about a problem of `bounds_problem`."""
    is_size = why.startswith(("more than", "names that lead"))
    return SEND_IN_PARTS if is_size else "send it as a string or leave it out"


def _children(item: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[Any, int]]:
    """Yields each value within, and how many characters its name or place adds to the path that leads to it."""
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
        # Before `int()`: to Python a boolean is one.
        case None | bool():
            return ""
        case int():
            # RFC 8785 writes numbers as doubles, where two integers beyond this can be one: so would be their digests.
            return "" if abs(item) <= MAX_INTEGER else "an integer outside ±(2^53-1)"
        case float():
            return "" if math.isfinite(item) else "a number that is not finite"
        case str():
            return "" if _is_unicode(item) else "text that is not Unicode (a lone surrogate)"
        case _:
            return f"a {type(item).__name__}, which is not a JSON type"


def _is_unicode(text: str) -> bool:
    try:
        # `json.loads` makes lone surrogates of escapes such as `\ud800`; UTF-8, and with it RFC 8785, has none.
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
