"""Settings that may hold secrets hold the names of environment variables instead: `env:NAME`, never a value."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

# By the end of a name: `github_token` holds a secret, `token_budget` a number.
_SECRET: Final = re.compile(
    r"(?:apikey|accesskey|privatekey|secretkey|token|password|passwd|secret|authorization|credentials?)\Z"
)
_COUNTED: Final = re.compile(r"token\Z")
_REFERENCE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)\Z")


def literal_secrets(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted names of what looks like a secret that is written out, such as `extra_headers.Authorization`."""
    return tuple(_literals(settings, "", secret=False))


def with_secrets(settings: Mapping[str, Any], read: Callable[[str], str]) -> dict[str, Any]:
    """`settings` with the value that `read` gives of each variable in place of its reference."""
    return {key: _read(value, read, secret=_is_secret(key)) for key, value in settings.items()}


def _is_secret(key: object) -> bool:
    return _SECRET.search(re.sub(r"[^a-z0-9]", "", str(key).lower())) is not None


def _literals(value: Any, name: str, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            # Whatever lies below a name of secrets is one: `credentials: {user: ...}`.
            yield from _literals(each, f"{name}.{key}" if name else str(key), secret=secret or _is_secret(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _literals(each, name, secret=secret)
    elif secret and _is_literal(value, name):
        yield name


def _is_literal(value: Any, name: str) -> bool:
    if isinstance(value, str):
        return value != "" and _REFERENCE.match(value) is None
    # The number of a token is no secret, a password of digits is.
    return isinstance(value, int | float) and not isinstance(value, bool) and _COUNTED.search(name.lower()) is None


def _read(value: Any, read: Callable[[str], str], *, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: _read(each, read, secret=secret or _is_secret(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_read(each, read, secret=secret) for each in value]
    found = _REFERENCE.match(value) if secret and isinstance(value, str) else None
    return read(found[1]) if found else value
