"""Capabilities: a tool's declared access beyond its arguments, provided by the worker (Q7).

A capability is an object that a handler *gets*. It does not sandbox Python code: a handler can still open its own
socket.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final, Literal, Protocol, runtime_checkable

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
    """A handler exceeded its capabilities. The message, `<CODE>: detail`, becomes `execution_failed`."""

    def __init__(self, code: CapabilityCode, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """The outside resources that a handler may use, declared on its tool.

    If a worker lacks a backend for one of them, the call is `not_available`.
    """

    network: Annotated[tuple[str, ...], Field(description="Hosts, `host` or `host:port`, in lower case.")] = ()
    secrets: Annotated[
        tuple[str, ...],
        Field(description="Names of variables or references, `env:NAME`, `file:PATH` or `secret:NAME`."),
    ] = ()
    storage: Annotated[bool, Field(description="Files of its tenant.")] = False
    process: Annotated[
        tuple[str, ...], Field(description="Programs that it may run, by name or absolute path; no shell.")
    ] = ()
    fs_reach: Annotated[
        tuple[str, ...],
        Field(description="Folders whose files it may read, absolute; with `:write` behind it, write as well."),
    ] = ()
    attachments: Annotated[bool, Field(description="Files that people sent.")] = False
    environment: Annotated[
        tuple[str, ...], Field(description="Variables that the programs of `process` see, and no others.")
    ] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The declared kinds, in the order of the fields."""
        # Spelled out, because no field is read by its name here. A missing kind would pass its gate without a backend;
        # a test checks each of `KINDS`.
        declared = {
            "network": self.network,
            "secrets": self.secrets,
            "storage": self.storage,
            "process": self.process,
            "fs_reach": self.fs_reach,
            "attachments": self.attachments,
        }
        return tuple(kind for kind, given in declared.items() if given)


KINDS: Final = tuple(each.name for each in fields(Capabilities) if each.name != "environment")
WRITABLE: Final = ":write"
"""The suffix of writable entries of `fs_reach`."""


class Secrets(Protocol):
    """Reads secrets by name."""

    async def get(self, name: str) -> str:
        """Read the secret that the tool declares as `name`, again at each call.

        Raises `CapabilityError` if it is not declared or not set, and `ConnectionError` if its source does not answer.
        """
        ...


class Storage(Protocol):
    """Stores the files of one tenant. Paths are relative, with `/`."""

    async def read(self, path: str) -> bytes:
        """Read a file. Raises `CapabilityError` for a path out of bounds, `FileNotFoundError` if it does not exist."""
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Write or replaces a whole file. Raises `CapabilityError`."""
        ...

    async def list(self) -> tuple[str, ...]:
        """List every file's path, sorted."""
        ...

    async def delete(self, path: str) -> None:
        """Remove a file if it exists. Raises `CapabilityError`."""
        ...


@dataclass(frozen=True)
class NetworkResponse:
    """A host's response."""

    status: int
    headers: Mapping[str, str]
    """The headers; their names are lower case."""
    body: bytes
    """The decompressed body."""

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the body as JSON. Raises `ValueError`."""
        return json.loads(self.body)


class Network(Protocol):
    """Speaks HTTP to the declared hosts."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> NetworkResponse:
        """Send one request and read the response, without following redirects.

        Raises `CapabilityError` for an undeclared host, and `ConnectionError` if the host is unreachable or silent.
        """
        ...


@dataclass(frozen=True)
class ProgramResult:
    """The result of a program."""

    status: int
    """The exit status. The negative signal number if a signal ended it."""
    output: bytes
    """The standard output."""
    errors: bytes
    """The standard error."""

    @property
    def text(self) -> str:
        """The output as UTF-8."""
        return self.output.decode("utf-8", "replace")


class Process(Protocol):
    """Runs the declared programs."""

    async def run(self, program: str, *arguments: str, content: bytes = b"", seconds: float = 30.0) -> ProgramResult:
        """Run a declared program with these arguments, and `content` as its input, in an empty directory.

        Raises `CapabilityError` for any other program or more than 1 MiB of output. Raises `TimeoutError` after
        `seconds`, and kills the program with all processes that it started.
        """
        ...


class FileReach(Protocol):
    """Accesses files of the declared directories. Paths are absolute."""

    async def read(self, path: str) -> bytes:
        """Read a file of at most 8 MiB.

        Raises `CapabilityError` for a path out of bounds, `FileNotFoundError` if it does not exist.
        """
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Write or replace a whole file in a writable directory. Raises as `read` does."""
        ...

    async def list(self, path: str) -> tuple[str, ...]:
        """List the names in a folder, sorted. Raises as `read`."""
        ...


@runtime_checkable
class CheckedBackend(Protocol):
    """Can report at start that the machine lacks something."""

    def problem(self, declared: Capabilities) -> str:
        """Return the missing program or directory of a tool, with the remedy, or ""."""
        ...


class Backend(Protocol):
    """A worker's source of one kind of capability.

    Secrets come from its provider of secrets instead. Called before every call, so it does no I/O.
    """

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        """Return the object for the handler of a call of `tenant`."""
        ...


@dataclass(frozen=True)
class GrantedCapabilities:
    """The `context.capabilities` of a handler: only what its tool declares."""

    by_kind: Mapping[str, Any] = field(default_factory=dict)

    @property
    def secrets(self) -> Secrets:
        """The declared secrets. Raises `CapabilityError` if there are none."""
        found: Secrets = self._of("secrets", "SECRET_NOT_DECLARED")
        return found

    @property
    def storage(self) -> Storage:
        """The tenant's files. Raises `CapabilityError` if storage is not declared."""
        found: Storage = self._of("storage", "PATH_NOT_REACHABLE")
        return found

    @property
    def network(self) -> Network:
        """The declared hosts. Raises `CapabilityError` if there are none."""
        found: Network = self._of("network", "HOST_NOT_ALLOWED")
        return found

    @property
    def process(self) -> Process:
        """The declared programs. Raises `CapabilityError` if there are none."""
        found: Process = self._of("process", "BINARY_NOT_ALLOWED")
        return found

    @property
    def fs_reach(self) -> FileReach:
        """The declared directories. Raises `CapabilityError` if there are none."""
        found: FileReach = self._of("fs_reach", "PATH_NOT_REACHABLE")
        return found

    def other(self, kind: str) -> Any:
        """Return the object of your own backend, for a kind without a property here.

        Raises `CapabilityError` if the tool does not declare it.
        """
        return self._of(kind, "NOT_DECLARED")

    def _of(self, kind: str, code: CapabilityCode) -> Any:
        # Use the words of E47: a `KeyError` would not explain the limit to the model and the developer.
        if kind not in self.by_kind:
            raise CapabilityError(code, f"the tool does not declare `{kind}` among its `capabilities`")
        return self.by_kind[kind]


NO_CAPABILITIES: Final = Capabilities()
NOTHING_GRANTED: Final = GrantedCapabilities()
