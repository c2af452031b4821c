"""Canonical JSON (RFC 8785) and the hashes made of it."""

import hashlib
from typing import Any

import rfc8785


class NotCanonical(ValueError):
    """A value RFC 8785 cannot write: an integer outside ±(2^53-1), NaN, infinity, a lone surrogate, not JSON."""


def canonical_json(value: Any) -> bytes:
    """`value` as RFC 8785 bytes; `1` and `1.0` are written alike. Raises `NotCanonical`."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, ValueError, TypeError, RecursionError) as error:
        raise NotCanonical(str(error).partition("\n")[0]) from None


def sha256_hex(value: Any) -> str:
    """sha-256 over the canonical JSON of `value`, as 64 lower-case hex digits. Raises `NotCanonical`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def nesting(value: Any) -> int:
    """How many lists and objects lie within one another at most; 0 for a scalar."""
    deepest = 0
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict | list | tuple):
            deepest = max(deepest, depth + 1)
            stack.extend((each, depth + 1) for each in (item.values() if isinstance(item, dict) else item))
    return deepest
