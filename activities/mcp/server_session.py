"""Opens a session with an MCP server and limits its answers.

Reads a list of tools even if some of them break the protocol: the SDK would reject the whole list.
"""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCResponse
from mcp_types.methods import SERVER_RESULTS
from pydantic import TypeAdapter, ValidationError

from signoff.activities.mcp.server_task import TaskExtension
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.outbound_http import AddressGuard, Resolve, read_networks
from signoff.contracts.errors import SecretMissing, Unavailable
from signoff.contracts.limits import MIB
from signoff.contracts.names import VERSION
from signoff.formats.visible_text import one_line
from signoff.keys.secret_references import is_reference
from signoff.keys.secrets import SecretProvider
from signoff.keys.tls_trust import load_trust
from signoff.registry.mcp.imported_tool import mark_malformed
from signoff.registry.mcp.tool_server import ToolServer

ANSWER_BYTES: Final = 8 * MIB
"""Maximum size of the answer to one request. A stream of events counts as one answer."""
_PLAIN: Final = {"accept-encoding": "identity"}
"""Headers of each request: a small answer may unpack to gigabytes, and the limit counts bytes as they arrive."""
_SERVER_FAULT: Final = 500

_LIST: Final = "tools/list"

_WORDS_CHARS: Final = 300
_BOUND: Final = """
import ctypes, os, signal, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
# The worker may have ended before that was asked for.
if os.getppid() == parent:
    os.execvp(program[0], program)
"""
"""Runs a program that the kernel kills with its parent, by PR_SET_PDEATHSIG of Linux."""


async def open_session(
    stack: AsyncExitStack, server: ToolServer, secrets: SecretProvider, resolve: Resolve
) -> ClientSession:
    """Open a session, which ends with `stack`.

    Raises `Unavailable`, and any error of the SDK. `resolve` finds the addresses of the server's name.
    """
    if server.command:
        environment = await _fill(server, server.env, secrets)
        program, *arguments = bind_to_parent(server.command, environment.get("PATH"))
        parameters = StdioServerParameters(
            command=program, args=arguments, env=environment, encoding_error_handler="replace"
        )
        streams = stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
        return await _enter(stack, streams)
    transport = GuardedTransport(AddressGuard(read_networks(server.allow_networks), resolve))
    http = httpx2.AsyncClient(
        headers={**await _fill(server, server.headers, secrets), **_PLAIN},
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        # The caller limits the duration of an answer.
        timeout=httpx2.Timeout(server.timeout, read=None),
    )
    await stack.enter_async_context(http)
    endpoint = streamable_http_client(server.url, http_client=http, max_sse_event_size=ANSWER_BYTES)
    session = await _enter(stack, endpoint)
    transport.connected = True
    return session


async def _enter(stack: AsyncExitStack, transport: AbstractAsyncContextManager[TransportStreams]) -> ClientSession:
    opened: list[ClientSession] = []
    tolerant = _mark_malformed_tools(transport, lambda: (opened[0].protocol_version if opened else None) or "")
    info = types.Implementation(name="signoff", version=VERSION)
    client = Client(tolerant, client_info=info, cache=None, extensions=[TaskExtension()])
    opened.append((await stack.enter_async_context(client)).session)
    return opened[0]


def bind_to_parent(command: tuple[str, ...], path: str | None = None) -> tuple[str, ...]:
    """Return a command whose program ends with this process, or the same command without kernel support.

    Raises `FileNotFoundError` if the program does not exist.
    """
    if not sys.platform.startswith("linux"):
        return command
    program = shutil.which(command[0], path=path)
    if program is None:
        # Check here: the interpreter in between always exists.
        raise FileNotFoundError(command[0])
    return (sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), program, *command[1:])


def unavailable(server: ToolServer, why: str) -> Unavailable:
    return Unavailable(f"the MCP server `{server.name}` cannot be used now: {why}")


def reason(error: BaseException, server: ToolServer) -> str:
    """Return why a connection failed, without repeating any part of a request."""
    if isinstance(error, BaseExceptionGroup):
        return reason(error.exceptions[0], server)
    if isinstance(error, TimeoutError):
        return f"it did not answer within {server.timeout:g} s"
    if isinstance(error, MCPError | httpx2.ConnectError):
        return words(error)
    if isinstance(error, FileNotFoundError | PermissionError) and server.command:
        return f"the program `{server.command[0]}` cannot be started ({type(error).__name__})"
    return type(error).__name__


def kind(error: BaseException) -> str:
    """Return the class name of an error, or of the first one in a group."""
    return kind(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else type(error).__name__


def words(error: object) -> str:
    """Return the error's message on one line."""
    text = error.message if isinstance(error, MCPError) else str(error)
    return one_line(text, _WORDS_CHARS).text or type(error).__name__


async def _fill(server: ToolServer, given: Mapping[str, str], secrets: SecretProvider) -> dict[str, str]:
    """Replace each reference by its secret. Raises `Unavailable`."""
    try:
        return {
            name: (await secrets.read(value)).strip() if is_reference(value) else value for name, value in given.items()
        }
    except SecretMissing as error:
        raise unavailable(server, f"it needs {error.message}") from None


@asynccontextmanager
async def _mark_malformed_tools(
    transport: AbstractAsyncContextManager[TransportStreams], version: Callable[[], str]
) -> AsyncIterator[TransportStreams]:
    """Open a transport that replaces each tool that breaks the protocol of `version` by a placeholder."""
    async with transport as (read, write):
        yield _TolerantStream(read, version), write


class _TolerantStream:
    def __init__(self, read: ReadStream[SessionMessage | Exception], version: Callable[[], str]) -> None:
        self._read, self._version = read, version

    def __getattr__(self, name: str) -> Any:
        # For example the context of the last message, which the SDK reads from streams that have it.
        return getattr(self._read, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._mark(await self._read.__anext__())

    async def receive(self) -> SessionMessage | Exception:
        return self._mark(await self._read.receive())

    async def aclose(self) -> None:
        await self._read.aclose()

    async def __aenter__(self) -> Self:
        await self._read.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._read.__aexit__(kind, error, trace)

    def _mark(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCResponse):
            result = item.message.result
            if isinstance(result, dict) and isinstance(result.get("tools"), list):
                tools = [_checked(each, at, result, self._version()) for at, each in enumerate(result["tools"], 1)]
                item.message.result = result | {"tools": tools}
        return item


def _checked(tool: Any, number: int, result: dict[str, Any], version: str) -> Any:
    problem = _problem(types.ListToolsResult, tool, result)
    if not problem and (surface := SERVER_RESULTS.get((_LIST, version))) is not None:
        problem = _problem(surface, tool, result)
    if not problem:
        return tool
    name = tool.get("name") if isinstance(tool, dict) else None
    return mark_malformed(name if isinstance(name, str) and name else f"tool {number}", problem)


def _problem(shape: Any, tool: Any, result: dict[str, Any]) -> str:
    """Return the tool's first problem, or "" if it has none or only the list itself has one."""
    try:
        TypeAdapter(shape).validate_python(result | {"tools": [tool]}, by_name=False)
    except ValidationError as error:
        for each in error.errors(include_input=False, include_url=False):
            if "tools" in each["loc"]:
                place = each["loc"][each["loc"].index("tools") + 2 :]
                return f"`{'.'.join(map(str, place))}`: {each['msg']}" if place else each["msg"]
    return ""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects only to addresses that `guard` permits, even if the name changes a moment later.

    Once `connected` is set, an HTTP 5xx ends the connection: the SDK would report it as the answer to a call, although
    a proxy may have sent it.
    """

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        # Ignore the environment's proxy: it would resolve the name again, and could connect to any address.
        self._inner = httpx2.AsyncHTTPTransport(verify=load_trust(), trust_env=False)
        self.connected = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host, secure = url.raw_host.decode("ascii"), url.scheme == "https"
        try:
            addresses = await self._guard.find(host, url.port or (443 if secure else 80), secure=secure)
        except NotDelivered as error:
            raise httpx2.ConnectError(error.message, request=request) from None
        failure: httpx2.TransportError | None = None
        for address in addresses:
            # The host header uses the name, and the certificate must contain it as well.
            request.url = url.copy_with(host=str(address))
            request.extensions = {**request.extensions, "sni_hostname": host}
            try:
                response = await self._inner.handle_async_request(request)
            # Nothing was sent yet, so the next address cannot deliver it twice.
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
                continue
            finally:
                # Redirects and answers are checked by the name.
                request.url = url
            return await self._bound(request, response)
        raise failure or httpx2.ConnectError(f"`{host}` has no address", request=request)

    async def _bound(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
        if self.connected and response.status_code >= _SERVER_FAULT:
            await response.aclose()
            raise httpx2.RemoteProtocolError(f"HTTP {response.status_code}", request=request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("answered compressed, unasked", request=request)
        stream = response.stream
        # The stream of unsolicited messages is open as long as the connection.
        if isinstance(stream, httpx2.AsyncByteStream) and request.method == "POST":
            response.stream = _BoundedStream(stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read = 0
        async for piece in self._inner:
            read += len(piece)
            if read > ANSWER_BYTES:
                raise httpx2.ReadError(f"answered with more than {ANSWER_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
