"""Opens a session with an MCP server: by a program of this machine or over HTTP, with the secrets that it needs."""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from signoff.activities.mcp.guarded_transport import ANSWER_BYTES, PLAIN, GuardedTransport
from signoff.activities.mcp.server_task import TaskExtension
from signoff.activities.mcp.tolerant_stream import mark_malformed_tools
from signoff.channels.outbound_http import AddressGuard, Resolve, read_networks
from signoff.contracts.errors import SecretMissing, Unavailable
from signoff.contracts.names import VERSION
from signoff.formats.visible_text import one_line
from signoff.keys.secret_references import is_reference
from signoff.keys.secrets import SecretProvider
from signoff.registry.mcp.tool_server import ToolServer

_WORDS_CHARS: Final = 300
_BOUND: Final = """
import ctypes, os, signal, sys
parent, program = int(sys.argv[1]), sys.argv[2:]
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
# The worker may have ended before that was asked for.
if os.getppid() == parent:
    os.execvp(program[0], program)
"""
"""Runs a program that the kernel ends with its parent, as PR_SET_PDEATHSIG of Linux says."""


async def open_session(
    stack: AsyncExitStack, server: ToolServer, secrets: SecretProvider, resolve: Resolve
) -> ClientSession:
    """Opens a session, which ends with `stack`. Raises `Unavailable`, and whatever the SDK raises.

    `resolve` finds the addresses behind the server's name.
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
        headers={**await _fill(server, server.headers, secrets), **PLAIN},
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        # How long an answer may take is for whoever waits for it.
        timeout=httpx2.Timeout(server.timeout, read=None),
    )
    await stack.enter_async_context(http)
    endpoint = streamable_http_client(server.url, http_client=http, max_sse_event_size=ANSWER_BYTES)
    session = await _enter(stack, endpoint)
    transport.connected = True
    return session


async def _enter(stack: AsyncExitStack, transport: AbstractAsyncContextManager[TransportStreams]) -> ClientSession:
    """Open a session over a transport, which reads also a list in which some tools break the protocol."""
    opened: list[ClientSession] = []
    tolerant = mark_malformed_tools(transport, lambda: (opened[0].protocol_version if opened else None) or "")
    info = types.Implementation(name="signoff", version=VERSION)
    client = Client(tolerant, client_info=info, cache=None, extensions=[TaskExtension()])
    opened.append((await stack.enter_async_context(client)).session)
    return opened[0]


def bind_to_parent(command: tuple[str, ...], path: str | None = None) -> tuple[str, ...]:
    """Returns a command whose program ends with this process, however that ends; the same one where no kernel does so.

    Raises `FileNotFoundError` for a program that is not there.
    """
    if not sys.platform.startswith("linux"):
        return command
    program = shutil.which(command[0], path=path)
    if program is None:
        # Looked for here: the interpreter between the two would be there in any case.
        raise FileNotFoundError(command[0])
    return (sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), program, *command[1:])


def unavailable(server: ToolServer, why: str) -> Unavailable:
    """Says that a server cannot be used now."""
    return Unavailable(f"the MCP server `{server.name}` cannot be used now: {why}")


def reason(error: BaseException, server: ToolServer) -> str:
    """Says why a connection was not made, in words that repeat nothing of a request."""
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
    """Names the class of an error, the first of several."""
    return kind(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else type(error).__name__


def words(error: object) -> str:
    """Returns the words of an error that a server made, on one line."""
    text = error.message if isinstance(error, MCPError) else str(error)
    return one_line(text, _WORDS_CHARS).text or type(error).__name__


async def _fill(server: ToolServer, given: Mapping[str, str], secrets: SecretProvider) -> dict[str, str]:
    """Puts each secret in the place of its reference. Raises `Unavailable`."""
    try:
        return {
            name: (await secrets.read(value)).strip() if is_reference(value) else value for name, value in given.items()
        }
    except SecretMissing as error:
        raise unavailable(server, f"it needs {error.message}") from None
