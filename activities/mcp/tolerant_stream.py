"""Reads a list of tools in which some break the protocol: the SDK refuses the whole list for one of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as types
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import JSONRPCResponse
from mcp_types.methods import SERVER_RESULTS
from pydantic import TypeAdapter, ValidationError

from signoff.registry.mcp.imported_tool import mark_malformed

_LIST: Final = "tools/list"


@asynccontextmanager
async def mark_malformed_tools(
    transport: AbstractAsyncContextManager[TransportStreams], version: Callable[[], str]
) -> AsyncIterator[TransportStreams]:
    """Open a transport that brings a stand-in for each tool that breaks the protocol of `version`."""
    async with transport as (read, write):
        yield _TolerantStream(read, version), write


class _TolerantStream:
    def __init__(self, read: ReadStream[SessionMessage | Exception], version: Callable[[], str]) -> None:
        self._read, self._version = read, version

    def __getattr__(self, name: str) -> Any:
        # Such as the context of the last message, for which the SDK asks a stream that has it.
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
    """Return the tool, or a stand-in for one that breaks the protocol."""
    problem = _problem(types.ListToolsResult, tool, result)
    if not problem and (surface := SERVER_RESULTS.get((_LIST, version))) is not None:
        problem = _problem(surface, tool, result)
    if not problem:
        return tool
    name = tool.get("name") if isinstance(tool, dict) else None
    return mark_malformed(name if isinstance(name, str) and name else f"tool {number}", problem)


def _problem(shape: Any, tool: Any, result: dict[str, Any]) -> str:
    """Return the first problem of a tool; "" where there is none, or only the list itself has one."""
    try:
        TypeAdapter(shape).validate_python(result | {"tools": [tool]}, by_name=False)
    except ValidationError as error:
        for each in error.errors(include_input=False, include_url=False):
            if "tools" in each["loc"]:
                place = each["loc"][each["loc"].index("tools") + 2 :]
                return f"`{'.'.join(map(str, place))}`: {each['msg']}" if place else each["msg"]
    return ""
