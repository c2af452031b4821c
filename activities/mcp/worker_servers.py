"""Keeps the worker's connections to MCP servers.

A connection opens when a call first needs it, and again after it ended.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from signoff.activities.mcp.server_session import kind, open_session, reason, unavailable, words
from signoff.activities.mcp.server_task import CreatedTask, TaskEnded, TaskLost, follow_task
from signoff.channels.outbound_http import Resolve, resolve_host
from signoff.contracts.errors import InDoubt, Unavailable
from signoff.contracts.limits import RESULT_BYTES
from signoff.formats.visible_text import one_line
from signoff.keys.secrets import SecretProvider
from signoff.registry.mcp.imported_tool import (
    MAX_TOOLS,
    ImportedTool,
    Listing,
    catalog_name,
    changed_fields,
    read_listing,
)
from signoff.registry.mcp.tool_server import ToolServer
from signoff.registry.tool_result import Result, ToolFailure, ToolResult

T = TypeVar("T")
R = TypeVar("R", bound=types.Result)

logger = logging.getLogger("signoff.activities")

_CLOSE_SECONDS: Final = 10.0
"""Time limit for closing a connection. The SDK gives a program two seconds for each of its steps."""
_MAX_PAGES: Final = 100
_NO_ANSWER: Final = (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT)
_UNKNOWN: Final = frozenset((types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT, types.PARSE_ERROR, types.INVALID_REQUEST))
"""Errors that the SDK also creates for an unreadable or missing answer: the call may have taken effect."""

# These logs repeat the servers' messages, which may be confidential.
for _name in ("mcp.client.stdio", "mcp.client.streamable_http"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class CallRefused(Exception):
    """The server refuses the call. The message is the server's."""


@dataclass(eq=False)
class _Open:
    """An open connection. Once retired, it ends with its last user."""

    session: ClientSession
    task: asyncio.Task[None]
    end: asyncio.Event
    users: int = 0
    retired: bool = False

    def retire(self) -> None:
        self.retired = True
        if not self.users:
            self.end.set()


@dataclass
class ServerConnection:
    """Speaks to one server, in either era of the protocol.

    Offers no sampling, elicitation or roots, and so answers no request of the server. `resolve` finds the addresses of
    its name.
    """

    server: ToolServer
    secrets: SecretProvider = field(repr=False)
    resolve: Resolve = resolve_host
    _open: _Open | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return all tools, as the server sends them. Raises `Unavailable`."""
        async with self._use_listed() as (_, tools):
            return tools

    async def call(
        self, name: str, args: Mapping[str, Any], check: Callable[[list[dict[str, Any]]], None]
    ) -> types.CallToolResult:
        """Let `check` inspect the present tools, then call the tool once.

        Raises any error of `check`, `Unavailable` if nothing was sent, `CallRefused` if the server refused, `InDoubt`
        if the outcome of a sent call is unknown.
        """
        async with self._use_listed() as (used, tools):
            check(tools)
            try:
                answer = await self._answer(used, name, args)
                return answer if isinstance(answer, types.CallToolResult) else await follow_task(answer, self._ask)
            except TaskEnded as error:
                raise CallRefused(words(error)) from None
            except TaskLost:
                raise self._in_doubt(name) from None
            except MCPError as error:
                if error.code in _UNKNOWN:
                    used.retire()
                    raise self._in_doubt(name) from None
                raise CallRefused(words(error.message)) from None
            # The result is invalid, or the connection ended.
            except (ValidationError, ConnectionError):
                used.retire()
                raise self._in_doubt(name) from None

    async def close(self) -> None:
        """Also ends the program of a local server."""
        if self._open is not None:
            self._open.end.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_CLOSE_SECONDS)

    async def _ask(self, request: types.Request[Any, Any], kind_of_result: type[R]) -> R:
        """Raises errors as `follow_task` requires."""
        used, _ = await self._use()
        try:
            async with asyncio.timeout(self.server.timeout):
                return await _while_open(used, used.session.send_request(request, kind_of_result))
        except MCPError as error:
            if error.code in _NO_ANSWER:
                used.retire()
                raise ConnectionResetError(words(error)) from None
            raise
        finally:
            used.users -= 1
            if used.retired:
                used.retire()

    async def _answer(self, used: _Open, name: str, args: Mapping[str, Any]) -> types.CallToolResult | CreatedTask:
        state: str | None = None
        while True:
            # Set no limit here: the tool's declaration limits its duration.
            sent = used.session.call_tool(
                name, dict(args), request_state=state, allow_input_required=True, allow_claimed=True
            )
            try:
                answer = await _while_open(used, sent)
            # The SDK checks the result against the server's schema. Signoff checks its own declaration with all other
            # results.
            except RuntimeError as error:
                raise CallRefused(
                    f"it ran, but its result does not match its server's schema: {words(error)}"
                ) from None
            if isinstance(answer, types.CallToolResult | CreatedTask):
                return answer
            if not isinstance(answer, types.InputRequiredResult):
                raise self._in_doubt(name)
            if answer.input_requests or answer.request_state is None:
                raise CallRefused("its server asks its caller for input, which Signoff does not give")
            # The server has not finished: continue the same call with the state that it returned.
            state = answer.request_state

    @asynccontextmanager
    async def _use_listed(self) -> AsyncIterator[tuple[_Open, list[dict[str, Any]]]]:
        """Yield a connection that has just listed its tools, with the list. Raises `Unavailable`."""
        used, tools = await self._connect_and_list()
        try:
            yield used, tools
        finally:
            used.users -= 1
            if used.retired:
                used.retire()

    async def _connect_and_list(self) -> tuple[_Open, list[dict[str, Any]]]:
        while True:
            used, is_new = await self._use()
            try:
                async with asyncio.timeout(self.server.timeout):
                    return used, await _while_open(used, _list_all(used.session))
            except TimeoutError:
                # Other calls on this connection may still get an answer.
                used.users -= 1
                raise self._away(f"it did not list its tools within {self.server.timeout:g} s") from None
            except (MCPError, ValidationError, ConnectionError) as error:
                used.users -= 1
                used.retire()
                # A connection from before may have ended since: its program was killed, or its session expired.
                if is_new:
                    raise self._away(words(error)) from None
            except BaseException:
                used.users -= 1
                raise

    async def _use(self) -> tuple[_Open, bool]:
        """Return the open connection or a new one, and whether it is new. Raises `Unavailable`."""
        async with self._lock:
            kept = self._open
            if kept is not None and not (kept.retired or kept.task.done()):
                kept.users += 1
                return kept, False
            ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
            end = asyncio.Event()
            task = asyncio.create_task(self._hold(ready, end))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            try:
                session = await asyncio.shield(ready)
            except asyncio.CancelledError:
                end.set()
                raise
            self._open = _Open(session, task, end, users=1)
            return self._open, True

    async def _hold(self, ready: "asyncio.Future[ClientSession]", end: asyncio.Event) -> None:
        """Open the connection and keep it until `end`: the SDK requires one task for both."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self.server.timeout):
                    session = await open_session(stack, self.server, self.secrets, self.resolve)
                ready.set_result(session)
                await end.wait()
        # This includes groups of errors.
        except Exception as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Unavailable) else self._away(reason(error, self.server)))
                # Retrieve the exception, so that asyncio does not log it if the caller has left.
                ready.exception()
            elif not end.is_set():
                logger.warning("the connection to the MCP server `%s` ended: %s", self.server.name, kind(error))
        finally:
            if not ready.done():
                ready.set_exception(self._away("it was stopped while it was connected"))
                ready.exception()

    def _away(self, why: str) -> Unavailable:
        return unavailable(self.server, why)

    def _in_doubt(self, name: str) -> InDoubt:
        return InDoubt(f"`{name}` was sent to the MCP server `{self.server.name}`, without an answer")


async def _while_open(used: _Open, work: Coroutine[Any, Any, T]) -> T:
    """Raises `ConnectionResetError` if the connection ends first."""
    running = asyncio.ensure_future(work)
    try:
        await asyncio.wait({running, used.task}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        raise ConnectionResetError("the connection ended")
    finally:
        if not running.done():
            running.cancel()
            await asyncio.wait({running})


async def _list_all(session: ClientSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        found += [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in page.tools]
        cursor = page.next_cursor
        # Read one tool more than the limit, so that the import can report that there are more.
        if not cursor or len(found) > MAX_TOOLS:
            break
    return found


_WORDS_CHARS: Final = 200
_BASE64: Final = (4, 3)
REMEDY: Final = "look at the change and run `signoff mcp import {}`"


class StaleTool(Exception):
    """A tool differs from its import. The message is the difference."""


class WorkerServers:
    """The connections to each server of a catalog. `resolve` finds the addresses of their names."""

    def __init__(
        self, servers: Mapping[str, ToolServer], secrets: SecretProvider, resolve: Resolve = resolve_host
    ) -> None:
        self._connections = {name: ServerConnection(server, secrets, resolve) for name, server in servers.items()}

    async def run(self, server: str, name: str, args: Mapping[str, Any]) -> Result:
        connection = self._connections[server]
        imported = connection.server.tools[name]
        try:
            answer = await connection.call(
                imported.remote_name, args, partial(check_current, connection.server, name, imported)
            )
        except StaleTool as stale:
            logger.warning("%s; %s", stale, REMEDY.format(server))
            return ToolFailure(f"Not run: {stale}. It is stale until a developer has looked at it.", "not_available")
        except Unavailable as error:
            logger.warning("%s: %s", name, error.message)
            return ToolFailure(f"Not run: {error.message}", "not_available")
        except CallRefused as refused:
            return ToolFailure(str(refused))
        return call_result(answer)

    async def problems(self) -> list[str]:
        found = await asyncio.gather(*(self._problems(each) for each in self._connections.values()))
        return [problem for problems in found for problem in problems]

    async def list_tools(self, server: str) -> Listing:
        """List the tools of a server as an import would read them now. Raises `Unavailable`."""
        return read_listing(server, await self._connections[server].list_tools())

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._connections.values()))

    async def _problems(self, connection: ServerConnection) -> list[str]:
        server = connection.server
        if not server.tools:
            return [f"no tool of the MCP server `{server.name}` was imported: run `signoff mcp import {server.name}`"]
        try:
            listed = await connection.list_tools()
        except Unavailable as error:
            return [error.message]
        found: list[str] = []
        for name, imported in server.tools.items():
            try:
                check_current(server, name, imported, listed)
            except StaleTool as stale:
                found.append(f"{stale}; {REMEDY.format(server.name)}")
        return found


def check_current(server: ToolServer, name: str, imported: ImportedTool, listed: Iterable[Mapping[str, Any]]) -> None:
    """Raise `StaleTool` unless the server lists the tool exactly as imported."""
    # Include every tool with this catalog name, to detect a duplicate.
    alike = [each for each in listed if catalog_name(server.name, str(each.get("name", ""))) == name]
    found = read_listing(server.name, alike)
    now = found.tools.get(name)
    at = f"`{name}` of the MCP server `{server.name}`"
    if now is None:
        why = "can no longer be imported" if found.left_out else "no longer exists"
        raise StaleTool(f"{at} {why}")
    if now.digest != imported.digest:
        fields = ", ".join(f"`{each}`" for each in changed_fields(imported, now))
        raise StaleTool(f"{at} has changed since it was imported: {fields}")


def call_result(answer: types.CallToolResult) -> Result:
    """Names content that the model cannot read, such as an image with type and size."""
    text = "\n".join(_block_text(block) for block in answer.content)
    if answer.is_error:
        return ToolFailure(_cut(text) or "the tool failed at its server, without a word")
    structured = answer.structured_content
    # The specification asks servers to repeat structured content as text, but not all do.
    value = structured if not answer.content and structured is not None else _cut(text)
    return ToolResult(value, structured)


def _block_text(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return _left_out("an image", block.mime_type, block.data)
        case types.AudioContent():
            return _left_out("a sound", block.mime_type, block.data)
        case types.ResourceLink():
            return f"[a resource: {_words(block.uri)}, {_words(block.name)}]"
        case types.EmbeddedResource():
            inner = block.resource
            if isinstance(inner, types.TextResourceContents):
                return f"[the resource {_words(inner.uri)}:]\n{inner.text}"
            return _left_out(f"the resource {_words(inner.uri)}", inner.mime_type or "of no type", inner.blob)


def _left_out(what: str, kind: str, base64: str) -> str:
    written, stands_for = _BASE64
    return f"[{what}, {_words(kind)}, {len(base64) * stands_for // written} bytes: left out]"


def _words(text: object) -> str:
    return one_line(str(text), _WORDS_CHARS).text


def _cut(text: str) -> str:
    # Nothing keeps more of a result.
    return text if len(text) <= RESULT_BYTES else text[:RESULT_BYTES]
