"""Parses durations as people write them."""

import re
from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
# Nine digits far exceed the longest duration. From 4,301 digits on, `int()` would raise its own message.
_TEXT: Final = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?\Z", re.ASCII)
_LONGEST: Final = 366 * 86_400


def seconds(value: Any) -> float:
    """Parse a number, a text such as `24h`, `15m`, `1d2h`, or a `timedelta`. Raises `ValueError`."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    # A boolean is an int in Python: `timeout: true` would mean one second.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("must be seconds as a number, or a text such as `24h`, `15m`, `1d2h`")
    total = _parse(value) if isinstance(value, str) else float(value)
    # Written so that NaN, for which every comparison is false, fails as well.
    if not 0 < total <= _LONGEST:
        raise ValueError("must be more than 0 and at most 366 days")
    return total


def as_text(span: float) -> str:
    """Write whole seconds in the largest unit that divides them: `15m`."""
    unit = next(unit for unit, size in _UNITS.items() if span % size == 0)
    return f"{span // _UNITS[unit]:.0f}{unit}"


def _parse(text: str) -> float:
    parts = _TEXT.match(text.strip())
    if not text.strip() or parts is None:
        raise ValueError(f"`{text}` is not a duration; write `24h`, `15m`, `1d2h` or seconds as a number")
    return float(
        sum(int(amount) * size for amount, size in zip(parts.groups(), _UNITS.values(), strict=True) if amount)
    )


_WRITTEN: Final = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
        # For editors, and less strict than `seconds`: a pattern cannot add up.
        {"type": "string", "pattern": r"^ *(?=\d)(\d{1,9}d)?(\d{1,9}h)?(\d{1,9}m)?(\d{1,9}s)? *$"},
    ]
}

Seconds = Annotated[float, BeforeValidator(seconds), WithJsonSchema(_WRITTEN)]
"""A duration field with float seconds."""
