from typing import TypeVar

Value = TypeVar("Value")


def some(value: Value | None) -> Value:
    """Return a value that must not be None."""
    assert value is not None
    return value
