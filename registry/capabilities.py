"""Capabilities: what a tool may reach beyond its arguments. Declared on the tool, backed by the worker (Q7).

A capability is what a handler is *given*. It does not fence in Python code: a handler that opens a socket of its own is
stopped by nothing here.
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


KINDS: Final = tuple(each.name for each in fields(Capabilities) if each.name != "environment")
WRITABLE: Final = ":write"
"""How an entry of `fs_reach` ends whose files may be written."""


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


@dataclass(frozen=True)
class ProgramResult:
    """What came of a program."""

    status: int
    """Its exit status; of one that was ended by a signal, the signal's number below zero."""
    output: bytes
    """What it wrote to its standard output."""
    errors: bytes
    """What it wrote to its standard error."""

    @property
    def text(self) -> str:
        """The output as UTF-8."""
        return self.output.decode("utf-8", "replace")


class Process(Protocol):
    """Runs the declared programs."""

    async def run(self, program: str, *arguments: str, content: bytes = b"", seconds: float = 30.0) -> ProgramResult:
        """Runs a program by the name that is declared, with these arguments as they are and `content` as its input, in
        an empty folder of its own.

        Raises `CapabilityError` for any other program and for more output than 1 MiB, `TimeoutError` for one that does
        not end in time; it ends then with all that it started.
        """
        ...


class FileReach(Protocol):
    """Reaches files of the declared folders; paths are absolute."""

    async def read(self, path: str) -> bytes:
        """Reads a file of at most 8 MiB. Raises `CapabilityError` out of bounds, `FileNotFoundError` where there is
        none.
        """
        ...

    async def write(self, path: str, content: bytes) -> None:
        """Writes or replaces a whole file in a folder that may be written. Raises as `read`."""
        ...

    async def list(self, path: str) -> tuple[str, ...]:
        """Lists the names in a folder, sorted. Raises as `read`."""
        ...


@runtime_checkable
class CheckedBackend(Protocol):
    """A backend that can tell at start what a machine lacks."""

    def problem(self, declared: Capabilities) -> str:
        """Returns the program or folder of a tool that is missing here, with the remedy; empty if none is."""
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

    @property
    def process(self) -> Process:
        """The declared programs. Raises `CapabilityError` where none are declared."""
        found: Process = self._of("process", "BINARY_NOT_ALLOWED")
        return found

    @property
    def fs_reach(self) -> FileReach:
        """The declared folders. Raises `CapabilityError` where none are declared."""
        found: FileReach = self._of("fs_reach", "PATH_NOT_REACHABLE")
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
