"""Plain data that cannot be changed.

Objects and lists raise on changes, at every depth.
"""

from collections.abc import Mapping
from typing import Any, Never

_REFUSAL = "what is registered cannot be changed; copy it first, by `dict(...)` or `list(...)`"


def _refuse(*_: Any, **__: Any) -> Never:
    raise TypeError(_REFUSAL)


class ReadOnlyDict(dict[str, Any]):
    """A `dict` that raises `TypeError` for every change.

    Every JSON library can read and write it.
    """

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> "ReadOnlyDict":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReadOnlyDict":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return read_only, (dict(self),)


class ReadOnlyList(list[Any]):
    """A `list` that raises `TypeError` for every change."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> "ReadOnlyList":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReadOnlyList":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return read_only, (list(self),)


def read_only(value: Any) -> Any:
    """Return a deep copy. Read-only data are returned unchanged."""
    if isinstance(value, ReadOnlyDict | ReadOnlyList):
        return value
    if isinstance(value, Mapping):
        return ReadOnlyDict({key: read_only(each) for key, each in value.items()})
    # Convert a tuple too: it is immutable, but its items may not be.
    return ReadOnlyList([read_only(each) for each in value]) if isinstance(value, list | tuple) else value


def writable_copy(value: Any) -> Any:
    """Return a deep copy for third-party code."""
    if isinstance(value, Mapping):
        return {key: writable_copy(each) for key, each in value.items()}
    return [writable_copy(each) for each in value] if isinstance(value, list) else value
