"""References that replace secrets in manifests and settings."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

FORMS: Final = "`env:NAME`, `file:PATH` or `secret:NAME`"
"""The kinds of references, for error messages."""
# Match the end of a name: `github_token` holds a secret, `token_budget` a number.
_SECRET: Final = re.compile(
    r"(?:apikey|accesskey|privatekey|secretkey|token|password|passwd|secret|authorization|credentials?)\Z"
)
_COUNTED: Final = re.compile(r"token\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Only these three kinds: a literal secret such as `user:word` must not pass for a reference.
_REFERENCE: Final = re.compile(r"(?:env:[A-Za-z_][A-Za-z0-9_]*|(?:file|secret):[!-~][ -~]{0,499})\Z")


def is_reference(text: str) -> bool:
    """A reference is `env:NAME`, `file:PATH` or `secret:NAME`."""
    return _REFERENCE.match(text) is not None


def is_secret_name(name: str) -> bool:
    return _VARIABLE.match(name) is not None or is_reference(name)


def as_reference(name: str) -> str:
    """A bare name means a variable."""
    return name if is_reference(name) else f"env:{name}"


def literal_secrets(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return dotted names, such as `extra_headers.Authorization`."""
    return tuple(_literals(settings, "", secret=False))


async def fill_references(settings: Mapping[str, Any], read: Callable[[str], Awaitable[str]]) -> dict[str, Any]:
    """Replace references only under names of secrets."""
    return {key: await _fill(value, read, secret=_is_secret(key)) for key, value in settings.items()}


def _is_secret(key: object) -> bool:
    return _SECRET.search(re.sub(r"[^a-z0-9]", "", str(key).lower())) is not None


def _literals(value: Any, name: str, *, secret: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            # Everything below a secret name is secret: `credentials: {user: ...}`.
            yield from _literals(each, f"{name}.{key}" if name else str(key), secret=secret or _is_secret(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _literals(each, name, secret=secret)
    elif secret and _is_literal(value, name):
        yield name


def _is_literal(value: Any, name: str) -> bool:
    if isinstance(value, str):
        return value != "" and not is_reference(value)
    # A number of tokens is no secret, a password of digits is.
    return isinstance(value, int | float) and not isinstance(value, bool) and _COUNTED.search(name.lower()) is None


async def _fill(value: Any, read: Callable[[str], Awaitable[str]], *, secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: await _fill(each, read, secret=secret or _is_secret(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [await _fill(each, read, secret=secret) for each in value]
    return await read(value) if secret and isinstance(value, str) and is_reference(value) else value
