"""Capabilities: what a tool may reach beyond its arguments. Declared on the tool, backed by the worker (Q7).

A capability is what a handler is *given*. It does not fence in Python code: a handler that opens a socket of its own is
stopped by nothing here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import Field

CapabilityCode = Literal[
    "HOST_NOT_ALLOWED",
    "SECRET_NOT_DECLARED",
    "SECRET_NOT_SET",
    "PATH_NOT_REACHABLE",
    "BINARY_NOT_ALLOWED",
    "REPLY_TOO_LARGE",
    "NOT_DECLARED",
]


class CapabilityError(Exception):
    """A handler reached further than it may; its message, `<CODE>: detail`, becomes `execution_failed` (E47)."""

    def __init__(self, code: CapabilityCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The needs of a handler, declared on its tool.

    A worker without a backend for one of them does not run the tool: the call is `not_available` (E16).
    """

    network: Annotated[tuple[str, ...], Field(description="Hosts, `host` or `host:port`, in lower case.")] = ()
    secrets: Annotated[
        tuple[str, ...],
        Field(description="Names of variables or references, `env:NAME`, `file:PATH` or `secret:NAME`."),
    ] = ()
    storage: Annotated[bool, Field(description="Files of its tenant.")] = False
    process: Annotated[bool, Field(description="Other programs.")] = False
    fs_reach: Annotated[tuple[str, ...], Field(description="Paths outside of its storage.")] = ()
    attachments: Annotated[bool, Field(description="Files that people sent.")] = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Returns the kinds of capability that are declared, in the order of the fields."""
        # Spelt out, as no field is read by its name here. A kind that is missing would pass its gate without a backend;
        # a test asks about each of `KINDS`.
        declared = {
            "network": self.network,
            "secrets": self.secrets,
            "storage": self.storage,
            "process": self.process,
            "fs_reach": self.fs_reach,
            "attachments": self.attachments,
        }
        return tuple(kind for kind, given in declared.items() if given)


KINDS: Final = tuple(each.name for each in fields(Capabilities))


class Secrets(Protocol):
    """Reads secrets by name."""

    async def get(self, name: str) -> str:
        """Reads the secret that the tool declares as `name`, anew each time.

        Raises `CapabilityError` for one that is not declared or not set, `ConnectionError` where its source does not
        answer.
        """
        ...


class Storage(Protocol):
    """Keeps the files of one tenant; paths are relative, with `/`."""

    async def read(self, path: str) -> bytes:
        """Reads a file. Raises `CapabilityError` out of bounds, `FileNotFoundError` where there is none."""
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Writes or replaces a whole file. Raises `CapabilityError`."""
        ...

    async def list(self) -> tuple[str, ...]:
        """Lists every file's path, sorted."""
        ...

    async def delete(self, path: str) -> None:
        """Removes a file, if it is there. Raises `CapabilityError`."""
        ...


@dataclass(frozen=True)
class NetworkResponse:
    """A host's response."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str]
    """The headers; their names are lower case."""
    body: bytes
    """The body, decompressed."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Returns the body as JSON. Raises `ValueError`."""
        return json.loads(self.body)


class Network(Protocol):
    """Speaks HTTP to the declared hosts."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> NetworkResponse:
        """Sends one request and reads the response; redirects are not followed.

        Raises `CapabilityError` for any other host, `ConnectionError` where it cannot be reached or does not answer.
        """
        ...


class Backend(Protocol):
    """A worker's source of one kind of capability; `secrets` come from its provider of secrets instead.

    It is asked before every call, so it does no I/O here.
    """

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        """Returns the object that the handler of a call of `tenant` uses."""
        ...


@dataclass(frozen=True)
class GrantedCapabilities:
    """The `context.capabilities` of a handler: nothing that its tool does not declare."""

    by_kind: Mapping[str, Any] = field(default_factory=dict)
    """What backends resolved, by kind."""

    @property
    def secrets(self) -> Secrets:
        """The declared secrets. Raises `CapabilityError` where none are declared."""
        found: Secrets = self._of("secrets", "SECRET_NOT_DECLARED")
        return found

    @property
    def storage(self) -> Storage:
        """The tenant's files. Raises `CapabilityError` where storage is not declared."""
        found: Storage = self._of("storage", "PATH_NOT_REACHABLE")
        return found

    @property
    def network(self) -> Network:
        """The declared hosts. Raises `CapabilityError` where none are declared."""
        found: Network = self._of("network", "HOST_NOT_ALLOWED")
        return found

    def other(self, kind: str) -> Any:
        """Returns the object that a backend of your own provides for a kind without a property here.

        Raises `CapabilityError` where the tool does not declare it.
        """
        return self._of(kind, "NOT_DECLARED")

    def _of(self, kind: str, code: CapabilityCode) -> Any:
        # In the words of E47: a `KeyError` would tell neither the model nor the developer what the handler may not do.
        if kind not in self.by_kind:
            raise CapabilityError(code, f"the tool does not declare `{kind}` among its `capabilities`")
        return self.by_kind[kind]


NO_CAPABILITIES: Final = Capabilities()
NOTHING_GRANTED: Final = GrantedCapabilities()
