"""Speaks MCP by its own package: both eras of the protocol over Streamable HTTP, without sessions of its own.

Imported only where the extra `mcp` is installed.
"""

import logging
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams
from mcp_types.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from signoff.contracts.errors import NotFound, SignoffError, Unavailable
from signoff.contracts.limits import REQUEST_BODY_BYTES
from signoff.contracts.names import VERSION
from signoff.contracts.responses import CallAnswer
from signoff.gateway.calls.call_reader import MOVING
from signoff.gateway.errors import BadRequest
from signoff.gateway.mcp.call_result import result_of, waiting_words
from signoff.gateway.mcp.tool_calls import HOLD_SECONDS, LONG_HOLD_SECONDS, SCOPE, ToolCalls

REFUSED: Final = -32000
"""The code of what is refused for a reason that the protocol has no code for."""
TOOL_USE_ID: Final = "claudecode/toolUseId"
"""Where in `_meta` a client says which of its calls this is."""
_INSTRUCTIONS: Final = (
    "People are asked before some of these calls run. A call that waits for them is answered once they have decided, "
    "or says under which code it waits: call the same tool with the same arguments later to get its result."
)
# What it says at INFO it says of every request.
logging.getLogger("mcp.server").setLevel(logging.WARNING)


class ProtocolServer:
    """Answers requests of MCP; `ToolCalls` of each stand in its scope."""

    def __init__(self) -> None:
        self._server: Server[Any] = Server(
            "signoff",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=_list_tools,
            on_call_tool=_call_tool,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. It holds nothing beyond that, so that any gateway may answer the next one."""
        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=REQUEST_BODY_BYTES)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def _list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    try:
        return ListToolsResult.model_validate({"tools": _calls(ctx).tools()})
    except SignoffError as error:
        raise _error_of(error) from None


async def _call_tool(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> CallToolResult:
    calls = _calls(ctx)
    try:
        calls.require_tool(params.name)
        return CallToolResult.model_validate(await _run(ctx, calls, params))
    except SignoffError as error:
        raise _error_of(error) from None


async def _run(ctx: ServerRequestContext[Any, Any], calls: ToolCalls, params: CallToolRequestParams) -> dict[str, Any]:
    meta: dict[str, Any] = dict(ctx.meta or {})
    turn, answer = await calls.propose(params.name, params.arguments or {}, _key(meta))
    if answer.state in MOVING:
        rounds = 0

        async def progress(now: CallAnswer) -> None:
            nonlocal rounds
            rounds += 1
            await ctx.session.report_progress(rounds, message=waiting_words(now))

        seconds = LONG_HOLD_SECONDS if "progress_token" in meta or "progressToken" in meta else HOLD_SECONDS
        answer = await calls.hold(turn, ctx.request_id, seconds, progress)
    await calls.hand_out(turn, answer)
    return result_of(answer)


def _key(meta: dict[str, Any]) -> str | None:
    given = meta.get(TOOL_USE_ID)
    return f"mcp:{given}" if isinstance(given, str) and given else None


def _calls(ctx: ServerRequestContext[Any, Any]) -> ToolCalls:
    calls: ToolCalls = cast(Request, ctx.request).scope[SCOPE]
    return calls


def _error_of(error: SignoffError) -> MCPError:
    match error:
        case Unavailable():
            return MCPError(INTERNAL_ERROR, error.message)
        case NotFound() | BadRequest(status=422):
            return MCPError(INVALID_PARAMS, error.message)
    return MCPError(REFUSED, error.message)
