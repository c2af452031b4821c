"""References to secrets: what a manifest or a setting writes in place of a secret, and where it must."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

FORMS: Final = "`env:NAME`, `file:PATH` or `secret:NAME`"
"""The references that there are, as errors name them."""
# By the end of a name: `github_token` holds a secret, `token_budget` a number.
_SECRET: Final = re.compile(
    r"(?:apikey|accesskey|privatekey|secretkey|token|password|passwd|secret|authorization|credentials?)\Z"
)
_COUNTED: Final = re.compile(r"token\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Three kinds and no others: a secret that is written out, such as `user:word`, must not pass for a reference.
_REFERENCE: Final = re.compile(r"(?:env:[A-Za-z_][A-Za-z0-9_]*|(?:file|secret):[!-~][ -~]{0,499})\Z")


def is_reference(text: str) -> bool:
    """Tells whether `text` says where a secret is: `env:NAME`, `file:PATH` or `secret:NAME`."""
    return _REFERENCE.match(text) is not None


def is_secret_name(name: str) -> bool:
    """Tells whether a tool may declare `name` among its secrets: a reference, or the name of a variable."""
    return _VARIABLE.match(name) is not None or is_reference(name)


def as_reference(name: str) -> str:
    """Returns the reference that a declared name stands for: of a bare one, the variable's."""
    return name if is_reference(name) else f"env:{name}"


def literal_secrets(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the dotted names of secrets that are written out, such as `extra_headers.Authorization`."""
    return tuple(_literals(settings, "", secret=False))


async def fill_references(settings: Mapping[str, Any], read: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    """Returns `settings` with what `read` gives for each reference, where a name says that a secret stands."""
    return {key: await _fill(value, read, secret=_is_secret(key)) for key, value in settings.items()}


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
        return value != "" and not is_reference(value)
    # The number of a token is no secret, a password of digits is.
    return isinstance(value, int | float) and not isinstance(value, bool) and _COUNTED.search(name.lower()) is None


async def _fill(value: Any, read: Callable[[str], Awaitable[str]], *, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: await _fill(each, read, secret=secret or _is_secret(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [await _fill(each, read, secret=secret) for each in value]
    return await read(value) if secret and isinstance(value, str) and is_reference(value) else value
