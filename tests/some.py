from typing import TypeVar

Value = TypeVar("Value")


def some(value: Value | None) -> Value:
    assert value is not None
    return value
