"""Speaks MCP through its own package: both eras of the protocol over Streamable HTTP, without stored sessions.

Converts the state of a call to a result of `tools/call`, or to a task of the tasks extension. Imported only if the
extra `mcp` is installed.
"""

import json
import logging
import re
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, RequestParams
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from signoff.calls import MOVING, SETTLED, CallHandle, CallTimes, naming
from signoff.contracts.canonical_json import NotCanonical, sha256_hex
from signoff.contracts.errors import BadRequest, NotFound, Refused, SignoffError, Unavailable
from signoff.contracts.limits import REQUEST_BODY_BYTES
from signoff.contracts.names import VERSION
from signoff.contracts.responses import CallAnswer
from signoff.plugins.mcp.tool_calls import HOLD_SECONDS, LONG_HOLD_SECONDS, SCOPE, ToolCalls
from signoff.plugins.mcp.url_elicitation import (
    SEND_BESIDE,
    DecisionPage,
    SendBeside,
    completion,
    elicitation,
    input_requests,
    new_elicitation_name,
)

REFUSED: Final = -32000
"""The code of a refusal without a code in the protocol."""
ROUNDS: Final = 10
"""The number of rounds before a client is asked to return later. Clients give up after as many."""
TOOL_USE_ID: Final = "claudecode/toolUseId"
"""The key of `_meta` with the client's id of the call."""
_UNIQUE_ID: Final = re.compile(r"toolu_[A-Za-z0-9_]{20,}")
"""Ids that the provider makes at random. Other models count from 0, and would get an earlier call's result."""
_INSTRUCTIONS: Final = (
    "People are asked before some of these calls run. A call that waits for them is answered once they have decided, "
    "or says under which code it waits: call the same tool with the same arguments later to get its result."
)
# At INFO it logs every request.
logging.getLogger("mcp.server").setLevel(logging.WARNING)


_Context: TypeAlias = ServerRequestContext[Any, Any]
TASKS: Final = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS: Final = 5_000
"""The interval at which a client should poll."""


class _TaskParams(RequestParams):
    task_id: str


class ProtocolServer:
    """Answers requests of MCP. Each request's scope holds its `ToolCalls`."""

    def __init__(self) -> None:
        self._server: Server[Any] = Server(
            "signoff",
            version=VERSION,
            instructions=_INSTRUCTIONS,
            on_list_tools=_list_tools,
        )
        # A call's result may be a task, which that constructor does not support.
        self._server.add_request_handler("tools/call", CallToolRequestParams, _call_tool)
        self._server.extensions[TASKS] = {}
        self._server.add_request_handler("tasks/get", _TaskParams, _get_task)
        self._server.add_request_handler("tasks/cancel", _TaskParams, _cancel_task)
        self._server.add_request_handler("tasks/update", _TaskParams, _update_task)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """No state remains, so that any gateway may answer the next request."""
        manager = StreamableHTTPSessionManager(self._server, stateless=True, max_request_body_size=REQUEST_BODY_BYTES)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def _list_tools(ctx: _Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    # The protocol requires it from 2026-07-28 on.
    calls, is_modern = _calls(ctx), ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    try:
        return ListToolsResult.model_validate({"tools": calls.tools(takes_choices=is_modern)})
    except SignoffError as error:
        raise await _refuse(calls, error) from None


async def _call_tool(ctx: _Context, params: CallToolRequestParams) -> dict[str, Any] | CallToolResult:
    calls = _calls(ctx)
    try:
        calls.calls.use_trace(ctx.meta or {})
        calls.require_tool(params.name)
        with naming(f"`{TOOL_USE_ID}`", _own_id(dict(ctx.meta or {}))):
            return await _ToolRequest(ctx, calls, params).answer()
    except SignoffError as error:
        raise await _refuse(calls, error, params.name) from None


class _ToolRequest:
    """One request to call a tool."""

    def __init__(self, ctx: _Context, calls: ToolCalls, params: CallToolRequestParams) -> None:
        self._ctx = ctx
        self._calls = calls
        self._tool = params.name
        self._args: dict[str, Any] = params.arguments or {}
        self._state = params.request_state
        self._meta: dict[str, Any] = dict(ctx.meta or {})
        self._is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._reports = 0

    async def answer(self) -> dict[str, Any] | CallToolResult:
        calls = self._calls
        call, rounds = await self._find()
        if call.answer.state not in SETTLED and _takes_tasks(self._ctx):
            # It is in Temporal now: a client finds it by its id.
            return created_task(call.answer, await calls.times(call))
        if call.answer.state not in SETTLED:
            page = await calls.decision_page(call) if rounds == 0 and self._opens_urls() else None
            if page is not None and self._is_modern:
                # Return at once: the user cannot decide while the request that opens the page is held.
                return {**await self._next_round(call, rounds), "inputRequests": input_requests(page)}
            call = await self._hold(call, page)
        # A client would begin its next round at once.
        is_last = rounds + 1 >= ROUNDS or calls.calls.was_hurried
        if call.answer.state not in SETTLED and self._is_modern and not is_last:
            return await self._next_round(call, rounds)
        await calls.hand_out(call)
        return CallToolResult.model_validate(result_of(call.answer))

    async def _hold(self, call: CallHandle, page: DecisionPage | None) -> CallHandle:
        send: SendBeside = cast(Request, self._ctx.request).scope[SEND_BESIDE]
        name = new_elicitation_name()
        if page is not None:
            await send(elicitation(page, name))
        call = await self._calls.hold(call, self._ctx.request_id, self._seconds(), self._report)
        if page is not None and call.answer.state in SETTLED:
            await send(completion(name))
        return call

    async def _next_round(self, call: CallHandle, rounds: int) -> dict[str, Any]:
        state = await self._calls.seal_state(self._tool, self._args, call, rounds + 1)
        return {"resultType": "input_required", "requestState": state}

    def _opens_urls(self) -> bool:
        if not self._is_modern:
            return self._calls.session.opens_urls
        declared = self._ctx.session.client_capabilities
        return declared is not None and declared.elicitation is not None and declared.elicitation.url is not None

    async def _find(self) -> tuple[CallHandle, int]:
        if self._state is None:
            # A task continues without a reader. A plain request's call runs while a request waits for it.
            attended = not _takes_tasks(self._ctx)
            key = _key(self._meta, self._calls.session.id, self._tool, self._args)
            return await self._calls.propose(self._tool, self._args, key, attended=attended), 0
        opened = await self._calls.open_state(self._tool, self._args, self._state)
        if opened is None:
            raise Refused("Invalid or expired requestState", code="unproved")
        return await self._calls.join(opened[0]), opened[1]

    def _seconds(self) -> float:
        # Clients with rounds need no longer ones: each is limited, and a lost connection loses none.
        is_longer = "progress_token" in self._meta and not self._is_modern
        return LONG_HOLD_SECONDS if is_longer else HOLD_SECONDS

    async def _report(self, answer: CallAnswer) -> None:
        self._reports += 1
        await self._ctx.session.report_progress(self._reports, message=waiting_words(answer))


async def _get_task(ctx: _Context, params: _TaskParams) -> dict[str, Any]:
    calls = _task_calls(ctx, params)
    try:
        # A call that a request proposed may have become a task, whose reader must start it.
        call = await calls.run_permitted(await calls.load(params.task_id))
        found = detailed_task(call.answer, await calls.times(call))
        await calls.hand_out(call)
        return found
    except SignoffError as error:
        raise await _refuse(calls, error) from None


async def _cancel_task(ctx: _Context, params: _TaskParams) -> dict[str, Any]:
    calls = _task_calls(ctx, params)
    try:
        await calls.withdraw(params.task_id)
    except SignoffError as error:
        raise await _refuse(calls, error) from None
    return {"resultType": "complete"}


async def _update_task(ctx: _Context, params: _TaskParams) -> dict[str, Any]:
    calls = _task_calls(ctx, params)
    try:
        await calls.load(params.task_id)
    except SignoffError as error:
        raise await _refuse(calls, error) from None
    # Signoff asks the client nothing, so every answer is outdated.
    return {"resultType": "complete"}


def _takes_tasks(ctx: _Context) -> bool:
    declared = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return modern and declared is not None and TASKS in (declared.extensions or {})


def _task_calls(ctx: _Context, params: _TaskParams) -> ToolCalls:
    """Raise `MCPError` if the client does not support tasks."""
    if not _takes_tasks(ctx):
        wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", wanted)
    calls = _calls(ctx)
    named = calls.request.headers.get("mcp-name")
    if named != params.task_id:
        raise MCPError(HEADER_MISMATCH, "`Mcp-Name` names another task than the request")
    return calls


def _key(meta: dict[str, Any], session: str, tool: str, args: dict[str, Any]) -> str | None:
    given = _own_id(meta)
    if given is None or not _UNIQUE_ID.fullmatch(given):
        return None
    try:
        return f"mcp:{sha256_hex([session, given, tool, args])}"
    except NotCanonical:
        return None


def _own_id(meta: dict[str, Any]) -> str | None:
    given = meta.get(TOOL_USE_ID)
    return given if isinstance(given, str) else None


def _calls(ctx: _Context) -> ToolCalls:
    calls: ToolCalls = cast(Request, ctx.request).scope[SCOPE]
    return calls


async def _refuse(calls: ToolCalls, error: SignoffError, tool: str = "") -> MCPError:
    await calls.calls.note_refusal(error, tool)
    return _error_of(error)


def _error_of(error: SignoffError) -> MCPError:
    match error:
        case Unavailable():
            return MCPError(INTERNAL_ERROR, error.message)
        case NotFound() | BadRequest(status=422) | Refused(code="unproved"):
            return MCPError(INVALID_PARAMS, error.message)
    return MCPError(REFUSED, error.message)


def result_of(answer: CallAnswer) -> dict[str, Any]:
    match answer.state:
        case "ended" if answer.code == "ok":
            return _outcome_result(answer)
        case "ended":
            return _error_result(_join(answer.note, _result_text(answer.result)))
        case "denied":
            return _error_result(_denied_words(answer))
    return _error_result(waiting_words(answer))


def waiting_words(answer: CallAnswer) -> str:
    state = f"Waiting for approval, {answer.code}." if answer.code else "Not finished yet."
    return f"{state} Call the same tool with the same arguments later to get its result."


def _outcome_result(answer: CallAnswer) -> dict[str, Any]:
    # A separate text: an approver's edit must not look like the tool's output.
    texts = [*([answer.note] if answer.note else []), _result_text(answer.result)]
    found: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": False}
    return {**found, "structuredContent": answer.result} if isinstance(answer.result, dict) else found


def _denied_words(answer: CallAnswer) -> str:
    by = f" by {answer.by}" if answer.by else ""
    return f"Denied{by} ({answer.source}): {answer.reason}" if answer.reason else f"Denied{by} ({answer.source})."


def _error_result(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _result_text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _join(note: str, text: str) -> str:
    return f"{note}\n{text}" if note else text


def created_task(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    return {"resultType": "task", **_base(answer, times)}


def detailed_task(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    """A finished task includes its result, for `tasks/get`."""
    found = {"resultType": "complete", **_base(answer, times)}
    return {**found, "result": result_of(answer)} if found["status"] == "completed" else found


def _base(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    found: dict[str, Any] = {
        "taskId": answer.id,
        "status": _status(answer),
        "createdAt": _stamp(times.begun_at),
        "lastUpdatedAt": _stamp(times.changed_at),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    words = _status_words(answer)
    return {**found, "statusMessage": words} if words else found


def _status(answer: CallAnswer) -> str:
    # Never `input_required`: the client's user does not decide.
    if answer.state in (*MOVING, "permitted"):
        return "working"
    return "cancelled" if (answer.state, answer.source) == ("denied", "cancelled") else "completed"


def _status_words(answer: CallAnswer) -> str:
    if answer.state == "waiting" and answer.code:
        return f"{answer.code} waits for approval"
    return answer.reason if answer.state == "denied" else ""


def _stamp(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
