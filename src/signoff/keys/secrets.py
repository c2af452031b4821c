"""The only provider of secrets: reads references and redacts their values."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from signoff.approvals.redaction import LEAST_CHARS, redact_secrets, texts_of
from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.keys.secret_references import as_reference, fill_references

REMEMBERED: Final = 256
"""The number of secrets that a process redacts.

Beyond it, the least recently read are forgotten.
"""
FILE_BYTES: Final = 64 * 1024
SECONDS: Final = 10.0
"""Timeout of a custom source, in seconds."""


class SecretSource(Protocol):
    """The source of `secret:NAME`: a custom vault, named in `SIGNOFF_SECRETS`."""

    async def read(self, name: str, tenant: str) -> str | None:
        """Return the secret `name`, or `None`.

        `tenant` is that of the call whose tool needs it, or "" for channels, models and sign-in. May raise anything:
        the reader sees only the error's class, and retries if that makes sense.
        """
        ...


class SecretProvider:
    """Reads secrets by reference and remembers them, so that this process shows none of them.

    `own` is the source behind `secret:`. `environment` replaces the process's variables.
    """

    def __init__(self, own: SecretSource | None = None, *, environment: Mapping[str, str] = os.environ) -> None:
        self._own = own
        self._environment = environment
        # In the order of their last use.
        self._read: dict[str, None] = {}
        self._known: frozenset[str] = frozenset()

    @property
    def known_values(self) -> frozenset[str]:
        """The secrets read last, at most `REMEMBERED`. No output may contain them."""
        return self._known

    async def read(self, reference: str, *, tenant: str = "") -> str:
        """Return the secret at `env:NAME`, `file:PATH` or `secret:NAME`.

        A bare name means a variable.

        Raises `SecretMissing` if there is none, and `Unavailable` if a custom source fails. Neither quotes anything
        that was read.
        """
        kind, _, name = as_reference(reference).partition(":")
        if kind == "secret":
            value = await self._from_own(name, tenant)
        else:
            value = await asyncio.to_thread(_from_file, name) if kind == "file" else self._environment.get(name, "")
        if not isinstance(value, str) or not value.strip():
            raise SecretMissing(_MISSING[kind].format(name), reference=reference)
        self._remember(value)
        return value

    async def fill(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Replace each reference by its secret. Raises as `read`."""
        return await fill_references(settings, self.read)

    def redact(self, text: str) -> str:
        """Replace known secrets, in every notation, by `[hidden]`."""
        return redact_secrets(text, self._known)

    async def _from_own(self, name: str, tenant: str) -> str | None:
        if self._own is None:
            raise SecretMissing(f"the secret `{name}`, and no source of secrets is named in SIGNOFF_SECRETS")
        try:
            async with asyncio.timeout(SECONDS):
                return await self._own.read(name, tenant)
        # A source is third-party code, and its error messages may quote a secret.
        except Exception as error:
            raise Unavailable(f"the secret `{name}` cannot be read now: {type(error).__name__}") from None

    def _remember(self, value: str) -> None:
        # Users of a secret strip the line end of a variable: redact the form that they send.
        value = value.strip()
        if len(value) < LEAST_CHARS:
            return
        self._read.pop(value, None)
        self._read[value] = None
        if len(self._read) > REMEMBERED:
            del self._read[next(iter(self._read))]
        if self._known != self._read.keys():
            self._known = frozenset(self._read)


def source_of(found: object, named: str) -> SecretSource:
    """Raise `ConfigError` if the object that `SIGNOFF_SECRETS` names is no source."""
    read = getattr(found, "read", None)
    if isinstance(found, type) or not asyncio.iscoroutinefunction(read):
        raise ConfigError(
            f"`{named}` of SIGNOFF_SECRETS is no source of secrets: it needs `async def read(self, name, tenant)`",
            field="secrets",
            value=named,
        )
    source: Any = found
    return source  # type: ignore[no-any-return]


def parts_of(secret: str) -> Iterator[str]:
    """Yield the secret without surrounding spaces and, if it is JSON, every text in it.

    For example, a service account's key is a JSON document.
    """
    yield from texts_of(secret.strip())
    try:
        document = json.loads(secret)
    except (ValueError, RecursionError):
        return
    yield from texts_of(document)


def _from_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES + 1)
        # Remove the line end that editors and `docker secret create` leave.
        return content.decode("utf-8").strip() if len(content) <= FILE_BYTES else ""
    except (OSError, ValueError):
        return ""


_MISSING: Final = {
    "env": "the environment variable `{}`, which is not set",
    "file": f"the file `{{}}`, which cannot be read, holds no text or more than {FILE_BYTES // 1024} KiB",
    "secret": "the secret `{}`, which the source named in SIGNOFF_SECRETS does not have",
}
