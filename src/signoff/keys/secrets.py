"""The one provider of secrets: reads `env:NAME`, `file:PATH` and `secret:NAME`, and hides what it read."""

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
"""How many secrets a process goes on hiding; of more, those read longest ago are forgotten."""
FILE_BYTES: Final = 64 * 1024
SECONDS: Final = 10.0
"""How long a source of one's own has to answer."""


class SecretSource(Protocol):
    """Where `secret:NAME` is read from: a vault of one's own, named in `SIGNOFF_SECRETS`."""

    async def read(self, name: str, tenant: str) -> str | None:
        """Returns the secret `name`, None where there is none.

        `tenant` is that of the call whose tool asks, "" for channels, models and sign-in. May raise anything: the
        reader is told the error's class alone, and tries again where that makes sense.
        """
        ...


class SecretProvider:
    """Reads secrets by reference and remembers them, so that no text told by this process repeats one.

    `own` is the source behind `secret:`; `environment` takes the place of the process's variables.
    """

    def __init__(self, own: SecretSource | None = None, *, environment: Mapping[str, str] = os.environ) -> None:
        self._own = own
        self._environment = environment
        # In the order of their last reading.
        self._read: dict[str, None] = {}
        self._known: frozenset[str] = frozenset()

    @property
    def known_values(self) -> frozenset[str]:
        """Returns the secrets read last, `REMEMBERED` at most: none of them may stand in an output."""
        return self._known

    async def read(self, reference: str, *, tenant: str = "") -> str:
        """Returns the secret at `env:NAME`, `file:PATH` or `secret:NAME`; a bare name is a variable's.

        Raises `SecretMissing` where there is none, `Unavailable` where the source of one's own does not answer.
        Neither repeats anything that was read.
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
        """Returns `settings` with each secret in place of its reference. Raises as `read`."""
        return await fill_references(settings, self.read)

    def redact(self, text: str) -> str:
        """Returns `text` with `[hidden]` in place of each secret read lately, in every spelling that is known."""
        return redact_secrets(text, self._known)

    async def _from_own(self, name: str, tenant: str) -> str | None:
        if self._own is None:
            raise SecretMissing(f"the secret `{name}`, and no source of secrets is named in SIGNOFF_SECRETS")
        try:
            async with asyncio.timeout(SECONDS):
                return await self._own.read(name, tenant)
        # A source is anybody's code, and its words may quote what it found.
        except Exception as error:
            raise Unavailable(f"the secret `{name}` cannot be read now: {type(error).__name__}") from None

    def _remember(self, value: str) -> None:
        # Whoever uses a secret strips a line end that a variable brought along: hidden is what they then send.
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
    """Returns `found`, which `SIGNOFF_SECRETS` names as `named`. Raises `ConfigError` where it is no source."""
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
    """Yields the secret without spaces around it and, where it is a JSON document such as a service account's, every
    text within it.
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
        # The line end that editors and `docker secret create` leave is no part of it.
        return content.decode("utf-8").strip() if len(content) <= FILE_BYTES else ""
    except (OSError, ValueError):
        return ""


_MISSING: Final = {
    "env": "the environment variable `{}`, which is not set",
    "file": f"the file `{{}}`, which cannot be read, holds no text or more than {FILE_BYTES // 1024} KiB",
    "secret": "the secret `{}`, which the source named in SIGNOFF_SECRETS does not have",
}
