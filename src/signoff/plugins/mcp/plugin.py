"""The routes of MCP: one address for each external agent, and the description of its sign-in."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from urllib.parse import quote

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.calls import Calls, External, ExternalCalls
from signoff.contracts.errors import BadRequest, NotFound
from signoff.contracts.responses import Fault
from signoff.formats.json_reader import NotJson, read_json
from signoff.plugins import BasePlugin, PluginRouter
from signoff.plugins.mcp.held_requests import HeldRequests, RequestName
from signoff.plugins.mcp.sealed_values import SEAL, ClientSession, new_session_id, open_session_id
from signoff.plugins.mcp.tool_calls import SCOPE, ToolCalls
from signoff.plugins.mcp.url_elicitation import SEND_BESIDE, opens_urls

if TYPE_CHECKING:
    from signoff.plugins.mcp.protocol_server import ProtocolServer

_MCP: Final = "/mcp"
"""The prefix of the addresses for external agents that speak MCP."""
RESOURCE: Final = "/.well-known/oauth-protected-resource"
"""The prefix of the addresses that describe sign-in (RFC 9728)."""
SESSION: Final = "mcp-session-id"
"""The header with the session of a request, in the older versions."""
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


def answer_fault(request: Request, fault: Fault, status: int, headers: Mapping[str, str]) -> Response:
    """A rejected client gets the address of the sign-in's description (RFC 9728, 5.1)."""
    error = {"unauthenticated": "", "scope": 'error="insufficient_scope", '}.get(fault.code)
    challenge = {}
    if error is not None:
        external: ExternalCalls = request.app.state.external_calls
        address = f"{external.public_url}{RESOURCE}{quote(request.url.path)}"
        challenge["www-authenticate"] = f'Bearer {error}scope="call", resource_metadata="{address}"'
    return JSONResponse(fault.model_dump(), status, {**headers, **challenge})


router = PluginRouter(_MCP, tag="mcp", fault=answer_fault, is_typed=True)
resource = PluginRouter(RESOURCE + _MCP, tag="mcp", is_typed=True)

User = Annotated[str | None, Query(description="The requester's id; optional if the agent acts for one person.")]


@router.post("/{agent}", summary="Send MCP requests", responses=_ANSWERS, body={"type": "object"})
async def answer_message(agent: str, request: Request, external: External, calls: Calls, user: User = None) -> Response:
    """JSON-RPC of MCP over Streamable HTTP, of 2026-07-28 and of 2025-11-25 and older: `tools/list` and `tools/call`
    of the tools that Signoff runs for this agent. A call that people are asked about is held while they are.
    """
    calls.agent(agent)
    if find_spec("mcp") is None:
        words = f"`{_MCP}/{agent}` needs an extra of Signoff: pip install 'signoff[mcp]'"
        raise BadRequest(words, status=501, code="not_installed")
    given, held = request.headers.get(SESSION, ""), _held_of(request)
    sealer = await calls.sealer(SEAL)
    session = open_session_id(sealer, calls.tenant, agent, given) if given else ClientSession()
    if session is None:
        # The protocol requires the client to begin a new session.
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": _NO_SESSION}, status_code=404)
    body = await request.body()
    try:
        method, params = _peek(body)
    except NotJson as error:
        # The protocol's package reads the body again, and takes one of two equal names.
        unreadable = {"code": _PARSE_ERROR, "message": f"Parse error: the body {error}"}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": unreadable}, status_code=400)
    if method == "notifications/cancelled" and session.id:
        held.cancel(RequestName(session.id, str(params.get("requestId"))))
    if method == "tools/call":
        # Check now: the response's headers may be sent before the call is held.
        calls.has_room()
    begun = ""
    if method == "initialize" and not session.id:
        begun = new_session_id(sealer, calls.tenant, agent, opens_urls=opens_urls(params.get("capabilities")))
    tools = ToolCalls(calls, external.public_url, request, held, agent, user, session)
    return _ProtocolResponse(await asyncio.to_thread(_load_server), tools, body, begun)


@resource.get("/{agent}", summary="Describe the sign-in of MCP clients", caller="anyone")
async def show_resource(agent: str, external: External) -> dict[str, Any]:
    """Metadata of a protected resource (RFC 9728): a token of the scope `call`, sent as a bearer's. The operator of
    the gateway issues it, and no authorization server does.
    """
    if not external.has_agent(agent):
        raise NotFound("there is no such agent")
    return {
        "resource": f"{external.public_url}{_MCP}/{agent}",
        "resource_name": "Signoff",
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["call"],
    }


class _ProtocolResponse(Response):
    """A response from the protocol's own package, for a body that was read already."""

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
            # The package sends no request whose answer might reach another gateway.
            await self._begun.wait()
            event = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n"
            await send({"type": "http.response.body", "body": event.encode(), "more_body": True})

        await self._server({**scope, SCOPE: self._calls, SEND_BESIDE: send_beside}, receiving, sending)


def _held_of(request: Request) -> HeldRequests:
    state = request.app.state
    if not hasattr(state, "held_requests"):
        state.held_requests = HeldRequests()
    held: HeldRequests = state.held_requests
    return held


def _peek(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return nothing for JSON of another form. Raises `NotJson`."""
    found = read_json(body)
    if not isinstance(found, dict):
        return "", {}
    method, params = found.get("method"), found.get("params")
    return method if isinstance(method, str) else "", params if isinstance(params, dict) else {}


@cache
def _load_server() -> "ProtocolServer":
    # In a thread, and once: the import takes a second, and must not block other requests.
    from signoff.plugins.mcp.protocol_server import ProtocolServer  # noqa: PLC0415

    return ProtocolServer()


class McpPlugin(BasePlugin):
    """Adds the routes of external agents that speak MCP."""

    name: ClassVar[str] = "mcp"

    def routers(self) -> Sequence[PluginRouter]:
        return (router, resource)
