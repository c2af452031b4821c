"""The routes of MCP: one address for each external agent, and who lets its clients in."""

import asyncio
import json
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.contracts.errors import BadRequest, NotFound
from signoff.contracts.responses import Fault
from signoff.formats.json_reader import NotJson, read_json
from signoff.gateway.api.faults import FAULTS
from signoff.gateway.auth.caller import own_tenant
from signoff.gateway.auth.dependencies import OPEN, Deps, TokenAgent
from signoff.gateway.auth.streams import streams_of
from signoff.gateway.calls.call_proposer import agent_of
from signoff.gateway.transport.middleware import MCP, RESOURCE
from signoff.plugins.mcp.held_requests import HeldRequests, RequestName
from signoff.plugins.mcp.sealed_values import MCP_KEY, ClientSession, new_session_id, open_session_id
from signoff.plugins.mcp.tool_calls import SCOPE, ToolCalls
from signoff.plugins.mcp.url_elicitation import SEND_BESIDE, opens_urls
from signoff.registry.extras import missing_extra

if TYPE_CHECKING:
    from signoff.plugins.mcp.protocol_server import ProtocolServer

SESSION: Final = "mcp-session-id"
"""The header by which a client of the older versions says to which session a request belongs."""
_PARSE_ERROR: Final = -32700
_NO_SESSION: Final = {"code": -32001, "message": "Session not found"}
_MESSAGE: Final = {"application/json": {"schema": {"type": "object"}}}
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A message of JSON-RPC, or a stream of them.",
        "content": {**_MESSAGE, "text/event-stream": {}},
    },
    202: {"description": "A notification is taken, which has no answer."},
    400: {"description": "No message that can be read, as an error of JSON-RPC.", "content": _MESSAGE},
    406: {"description": "The client accepts neither of the two, as an error of JSON-RPC.", "content": _MESSAGE},
    501: {"model": Fault, "description": "The extra `signoff[mcp]` is not installed."},
}
router = APIRouter(tags=["mcp"], responses=FAULTS)

User = Annotated[str | None, Query(description="In whose name, by id; needless where the agent acts for one alone.")]


@router.post(
    MCP + "{agent}",
    summary="Speak to Signoff by MCP",
    response_class=Response,
    responses=_ANSWERS,
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}},
)
async def answer_message(agent: str, request: Request, deps: Deps, caller: TokenAgent, user: User = None) -> Response:
    """JSON-RPC of MCP over Streamable HTTP, of 2026-07-28 and of 2025-11-25 and older: `tools/list` and `tools/call`
    of the tools that Signoff runs for this agent. A call that people are asked about is held while they are.
    """
    agent_of(deps, caller, agent)
    if lacks := missing_extra("mcp"):
        raise BadRequest(f"`{MCP}{agent}` {lacks}", status=501, code="not_installed")
    tenant, given, held = own_tenant(caller, None), request.headers.get(SESSION, ""), _held_of(request)
    key = await deps.store.secret_key(MCP_KEY)
    session = open_session_id(key, tenant, agent, given) if given else ClientSession()
    if session is None:
        # A client begins a new one then, as the protocol asks.
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": _NO_SESSION}, status_code=404)
    body = await request.body()
    try:
        method, params = _peek(body)
    except NotJson as error:
        # The protocol's package reads the body again, and of two equal names takes one.
        unreadable = {"code": _PARSE_ERROR, "message": f"Parse error: the body {error}"}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": unreadable}, status_code=400)
    if method == "notifications/cancelled" and session.id:
        held.cancel(RequestName(session.id, str(params.get("requestId"))))
    if method == "tools/call":
        # Now: the headers of the answer may be out before the call is held.
        streams_of(request).check_room(request)
    begun = ""
    if method == "initialize" and not session.id:
        begun = new_session_id(key, tenant, agent, opens_urls=opens_urls(params.get("capabilities")))
    calls = ToolCalls(deps, request, held, caller, agent, user, session)
    return _ProtocolResponse(await asyncio.to_thread(_load_server), calls, body, begun)


@router.get(RESOURCE + MCP + "{agent}", dependencies=[OPEN], summary="Who lets clients of MCP in", response_model=None)
async def show_resource(agent: str, deps: Deps) -> dict[str, Any]:
    """Metadata of a protected resource (RFC 9728): a token of the scope `call`, sent as a bearer's. No authorization
    server gives one; whoever runs this gateway makes it.
    """
    actor = deps.catalog.actors.get(agent)
    if actor is None or actor.external is None:
        raise NotFound("there is no such agent")
    return {
        "resource": f"{deps.settings.public_url}{MCP}{agent}",
        "resource_name": "Signoff",
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["call"],
    }


class _ProtocolResponse(Response):
    """An answer that the protocol's own package writes, to a body that was read already."""

    def __init__(self, server: ASGIApp, calls: ToolCalls, body: bytes, session: str) -> None:
        super().__init__()
        self._server = server
        self._calls = calls
        self._request: bytes | None = body
        self._session = session
        self._begun = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receiving() -> Message:
            if self._request is None:
                return await receive()
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and self._session and message["status"] == 200:
                MutableHeaders(scope=message)[SESSION] = self._session
            await send(message)
            self._begun.set()

        async def send_beside(message: dict[str, Any]) -> None:
            # The package sends no request where its answer might come to another gateway.
            await self._begun.wait()
            event = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n"
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})

        await self._server({**scope, SCOPE: self._calls, SEND_BESIDE: send_beside}, receiving, sending)


def _held_of(request: Request) -> HeldRequests:
    held: HeldRequests = request.app.state.held_requests
    return held


def _peek(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return method and parameters of a message; nothing of JSON of another shape. Raises `NotJson`."""
    found = read_json(body)
    if not isinstance(found, dict):
        return "", {}
    method, params = found.get("method"), found.get("params")
    return method if isinstance(method, str) else "", params if isinstance(params, dict) else {}


@cache
def _load_server() -> "ProtocolServer":
    # In a thread, and once: it takes a second, for which nobody else is to wait.
    from signoff.plugins.mcp.protocol_server import ProtocolServer  # noqa: PLC0415

    return ProtocolServer()
