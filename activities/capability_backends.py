"""Backends of declared capabilities: secrets, files of tenants, hosts."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import httpx2

from signoff.activities.backends.folders import Folders, is_supported
from signoff.activities.backends.programs import Programs
from signoff.contracts.errors import ConfigError, SecretMissing, Unavailable
from signoff.contracts.ids import is_id
from signoff.contracts.limits import MIB
from signoff.keys.secrets import SecretProvider, parts_of
from signoff.keys.tls_trust import load_trust
from signoff.registry.capabilities import (
    Backend,
    Capabilities,
    CapabilityError,
    CheckedBackend,
    GrantedCapabilities,
    NetworkResponse,
)
from signoff.registry.tool import Tool

NETWORK_SECONDS: Final = 30.0
REPLY_BYTES: Final = 8 * MIB
"""Maximum body size of a host's response."""
_PART: Final = ".signoff-part"
"""Suffix of an incompletely written file."""
logger = logging.getLogger("signoff.activities")
_THIS_MACHINE: Final = ("localhost", "127.0.0.1")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


class GrantedSecrets:
    """Reads the secrets that a call's tool declares. `used` holds each secret text that the handler received."""

    def __init__(self, provider: SecretProvider, names: tuple[str, ...], tenant: str) -> None:
        self._provider = provider
        self._names = names
        self._tenant = tenant
        self.used: set[str] = set()

    async def get(self, name: str) -> str:
        if name not in self._names:
            raise CapabilityError("SECRET_NOT_DECLARED", name)
        try:
            found = await self._provider.read(name, tenant=self._tenant)
        except SecretMissing:
            raise CapabilityError("SECRET_NOT_SET", name) from None
        except Unavailable as error:
            # `ConnectionError` is Python's own name for a retryable failure.
            raise ConnectionError(error.message) from None
        self.used.update(parts_of(found))
        return found


class TenantStorage:
    """Files below `root`, in one folder a tenant. No tenant reaches another's."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        """The first write creates the tenant's folder."""
        return _Folder(self._root, tenant)


class _Folder:
    def __init__(self, root: Path, tenant: str) -> None:
        self._root = root
        self._tenant = tenant

    async def read(self, path: str) -> bytes:
        return await asyncio.to_thread(self._place(path).read_bytes)

    async def write(self, path: str, content: bytes) -> None:
        await asyncio.to_thread(_replace, self._place(path), content)

    async def list(self) -> tuple[str, ...]:
        return await asyncio.to_thread(self._names)

    async def delete(self, path: str) -> None:
        await asyncio.to_thread(self._place(path).unlink, missing_ok=True)

    def _folder(self) -> Path:
        # An id has no dots or slashes, so the folder's name leads nowhere else.
        if not is_id(self._tenant):
            raise CapabilityError("PATH_NOT_REACHABLE", "the turn has no tenant")
        return self._root.resolve() / self._tenant

    def _place(self, path: str) -> Path:
        parts = PurePosixPath(path).parts
        # Windows treats a backslash as a separator, and no system accepts NUL: such a path has different meanings.
        plain = path and "\0" not in path and "\\" not in path and not path.startswith("/")
        if not plain or not parts or ".." in parts:
            raise CapabilityError("PATH_NOT_REACHABLE", path[:200])
        folder = self._folder()
        # A link inside the folder may lead out of it.
        place = folder.joinpath(*parts).resolve()
        if folder not in place.parents:
            raise CapabilityError("PATH_NOT_REACHABLE", path[:200])
        return place

    def _names(self) -> tuple[str, ...]:
        folder = self._folder()
        found = (each for each in folder.rglob("*") if each.is_file() and not each.is_symlink())
        return tuple(sorted(each.relative_to(folder).as_posix() for each in found if not each.name.endswith(_PART)))


def _replace(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"{place.name}.{uuid.uuid4().hex}{_PART}")
    part.write_bytes(content)
    # A rename replaces the file atomically: no reader sees half a file, and a killed worker leaves the old one.
    part.replace(place)


class HttpNetwork:
    """Provides declared hosts over HTTPS, and HTTP to this machine. `transport` replaces the network in tests."""

    def __init__(self, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._transport = transport

    def resolve(self, declared: Capabilities, tenant: str) -> object:
        return _Hosts(declared.network, self._transport)


class _Hosts:
    def __init__(self, hosts: tuple[str, ...], transport: httpx2.AsyncBaseTransport | None) -> None:
        self._hosts = hosts
        self._transport = transport

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> NetworkResponse:
        target = self._target(url)
        if "host" in httpx2.Headers(headers):
            # The header could name another host to a proxy of the declared one.
            raise CapabilityError("HOST_NOT_ALLOWED", "a `host` header is not the handler's to give")
        # Use one client a call: it keeps no cookies for the next call, which may be another tenant's. Do not follow
        # redirects: they may lead to an undeclared host with the handler's data.
        client = httpx2.AsyncClient(
            transport=self._transport, verify=load_trust(), timeout=NETWORK_SECONDS, follow_redirects=False
        )
        try:
            async with client, client.stream(method, target, headers=headers, content=content) as response:
                return await _reply(response, target.host)
        except httpx2.RequestError as error:
            # Raise Python's own retryable error. Do not repeat httpx2's message, which may quote the address.
            raise ConnectionError(f"{target.host}: {type(error).__name__}") from None

    def _target(self, url: str) -> httpx2.URL:
        try:
            target = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError):
            raise CapabilityError("HOST_NOT_ALLOWED", "this is no address") from None
        host = target.host.lower()
        port = target.port or _DEFAULT_PORTS.get(target.scheme, 0)
        secure = target.scheme == "https" or (target.scheme == "http" and host in _THIS_MACHINE)
        plain = port == _DEFAULT_PORTS.get(target.scheme)
        # `https://declared@other/` reads like the declared host.
        if not secure or target.userinfo or not (f"{host}:{port}" in self._hosts or (plain and host in self._hosts)):
            raise CapabilityError("HOST_NOT_ALLOWED", f"{target.scheme}://{host}:{port}"[:200])
        return target


async def _reply(response: httpx2.Response, host: str) -> NetworkResponse:
    body = bytearray()
    # Count the unpacked bytes as they arrive: a small body may unpack to gigabytes, and its stated length proves
    # nothing.
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > REPLY_BYTES:
            raise CapabilityError("REPLY_TOO_LARGE", f"{host} answered with more than {REPLY_BYTES} bytes")
    named = {name.lower(): value for name, value in response.headers.items()}
    return NetworkResponse(response.status_code, named, bytes(body))


def built_in_backends(storage: Path | None = None) -> dict[str, Backend]:
    """Return the backends of a worker without configuration. Files of tenants need a folder for them."""
    backends: dict[str, Backend] = {"network": HttpNetwork(), "process": Programs()}
    if is_supported():
        backends["fs_reach"] = Folders()
    return backends if storage is None else {**backends, "storage": TenantStorage(storage)}


def check_backends(tools: Iterable[Tool], backends: Mapping[str, Backend], task_queue: str) -> None:
    """Raise `ConfigError` if a tool of this worker declares a program or folder that this machine lacks.

    Tools of another task queue run elsewhere.
    """
    for tool in tools:
        if tool.task_queue not in ("", task_queue):
            continue
        for kind in tool.capabilities.kinds:
            backend = backends.get(kind)
            problem = backend.problem(tool.capabilities) if isinstance(backend, CheckedBackend) else ""
            if problem:
                field = f"capabilities.{kind}"
                raise ConfigError(f"tool `{tool.name}` needs {problem}", tool_name=tool.name, field=field)


def grant_capabilities(
    backends: Mapping[str, Backend], secrets: SecretProvider, tool: Tool, tenant: str
) -> GrantedCapabilities:
    """Return the declared capabilities of `tool` for its handler, as far as backends exist.

    Never raises: the gate `capabilities` checks first, and a missing capability fails when the handler uses it.
    """
    found: dict[str, object] = {}
    for kind in tool.capabilities.kinds:
        if kind == "secrets":
            found[kind] = GrantedSecrets(secrets, tool.capabilities.secrets, tenant)
            continue
        try:
            found[kind] = backends[kind].resolve(tool.capabilities, tenant)
        except Exception as error:
            logger.warning("no %s for tool %s (%s)", kind, tool.name, type(error).__name__)
    return GrantedCapabilities(found)


def handed_out_secrets(given: GrantedCapabilities, secrets: SecretProvider) -> frozenset[str]:
    """Return the secrets that the handler received and the worker read. None of them may appear in an output."""
    used = given.by_kind.get("secrets")
    return secrets.known_values.union(used.used if isinstance(used, GrantedSecrets) else ())
