"""Writes canonical JSON (RFC 8785) and computes hashes of it."""

import hashlib
import json
from typing import Any, Final

import rfc8785

_SAFE_INTEGER: Final = 2**53 - 1


class NotCanonical(ValueError):
    """Raised for a value RFC 8785 cannot write: an integer outside ±(2^53-1), NaN, infinity, a lone surrogate, not
    JSON.
    """


def canonical_json(value: Any) -> bytes:
    """Writes `value` as RFC 8785 bytes; `1` and `1.0` are written alike. Raises `NotCanonical`."""
    try:
        if _plain(value):
            # The same bytes in a third of the time; a turn hashes a dozen values.
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, ValueError, TypeError, RecursionError) as error:
        # ValueError also comes of integers with more digits than Python prints (4,300), out of the library's message.
        raise NotCanonical(str(error).partition("\n")[0]) from None


def sha256_hex(value: Any) -> str:
    """Computes the sha-256 of the canonical JSON of `value`, as 64 lower-case hex digits. Raises `NotCanonical`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def same_arguments(one: Any, other: Any) -> bool:
    """Return whether two values have one canonical form; `False` where one of them has none.

    Never compare arguments by `==`: Python takes `True` for `1`, and a digest does not.
    """
    try:
        return canonical_json(one) == canonical_json(other)
    except NotCanonical:
        return False


def nesting(value: Any) -> int:
    """Returns how deep lists and objects are nested; 0 for a scalar."""
    deepest = 0
    # Not recursive: a value from outside may be deeper than Python's stack.
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict | list | tuple):
            deepest = max(deepest, depth + 1)
            stack.extend((each, depth + 1) for each in (item.values() if isinstance(item, dict) else item))
    return deepest


def _plain(value: Any) -> bool:
    """Returns whether `value` has only texts, null, booleans and safe integers, below names in ASCII.

    Where RFC 8785 differs from sorted compact JSON is in how it writes floats, and in how it sorts names beyond ASCII.
    Anything else is left to `rfc8785`: subclasses of texts and numbers, and objects and lists that yield their items in
    a way of their own.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        # The exact type: to `isinstance` a boolean is an integer, and a subclass may write itself in its own way.
        kind = type(item)
        # The most frequent first.
        if kind is str or kind is bool or item is None:
            continue
        if kind is dict or (issubclass(kind, dict) and kind.items is dict.items):
            # RFC 8785 sorts names by UTF-16 code units, Python by code points; below ASCII's end that is the same.
            for name in item:
                if type(name) is not str or not name.isascii():
                    return False
            stack.extend(item.values())
        elif kind is list or kind is tuple or (issubclass(kind, list) and kind.__iter__ is list.__iter__):
            stack.extend(item)
        elif kind is int:
            if not -_SAFE_INTEGER <= item <= _SAFE_INTEGER:
                return False
        else:
            return False
    return True


def json_bytes(value: Any) -> bytes:
    """Writes `value` as compact JSON in UTF-8. Raises `NotCanonical` for anything that is not JSON: NaN, lone
    surrogates, objects.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        # Only the type's name goes on: the texts of some of these quote the value.
        raise NotCanonical(f"not JSON: {type(error).__name__}") from None
