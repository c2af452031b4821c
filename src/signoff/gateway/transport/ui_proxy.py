"""A reverse proxy for Temporal's UI, which checks neither host names nor origins."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import httpx2
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from signoff.contracts.limits import REPORT_BODY_BYTES
from signoff.gateway.live import Live
from signoff.gateway.transport.body_limit import READING, BodyLimit, refuse
from signoff.gateway.transport.own_names import OwnNames

UPSTREAM_SECONDS: Final = 60.0
"""Longest silence of Temporal's UI. It holds some requests for long."""
_TIMES: Final = {"timeout": httpx2.Timeout(UPSTREAM_SECONDS).as_dict()}
_PER_CONNECTION: Final = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that describe one connection (RFC 9110, 7.6.1)."""
_DROPPED: Final = _PER_CONNECTION | {"host", "origin", "content-length", "expect"}
_CORS: Final = "access-control-"
_ADDED: Final = (
    # Another site's page could otherwise overlay the UI's buttons.
    ("x-frame-options", "DENY"),
    ("content-security-policy", "frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
)


def build_ui_proxy(upstream: str, host: str, public_url: str) -> Starlette:
    """Make the proxy for the UI at `upstream`.

    Browsers use `public_url`. The proxy answers only its own host names, so a rebound name reads nothing, and refuses
    requests of other sites.
    """
    # The environment's proxies must not see the traffic.
    client = httpx2.AsyncClient(base_url=upstream, trust_env=False)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with client:
            yield

    guarded = _UiGuard(
        BodyLimit(_Forward(client), allowed=lambda _: REPORT_BODY_BYTES, refused=lambda _: None),
        OwnNames(host, public_url),
    )
    app = Starlette(routes=[Mount("/", app=guarded)], lifespan=lifespan)
    app.state.live = Live()
    return app


class _UiGuard:
    """Refuses foreign host names, and changes from pages of other sites."""

    def __init__(self, app: ASGIApp, names: OwnNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if not self._names.has_host(headers):
            await refuse(
                send,
                421,
                "foreign_host",
                "Temporal's UI does not answer under that name; see the setting `temporal_ui`",
            )
        elif "transfer-encoding" in headers:
            await refuse(send, 411, "length", "send the body's length in `Content-Length`, without `Transfer-Encoding`")
        elif scope["method"] not in READING and not self._names.is_own_page(headers):
            await refuse(send, 403, "cross_site", "requests from other sites are refused")
        else:
            await self._app(scope, receive, send)


class _Forward:
    """Forwards requests to Temporal's UI and streams the answers back."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = b"" if scope["method"] in READING else await request.body()
        sent = [(name, value) for name, value in request.headers.items() if name not in _DROPPED]
        # The path as the browser sent it: workflow ids in it are percent-encoded.
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        try:
            url = self._client.base_url.copy_with(raw_path=target)
        except httpx2.InvalidURL:
            await refuse(send, 400, "malformed", "this is not a page's address")
            return
        try:
            # Do not let the client build the request: it would add headers and ask for compressed answers.
            onward = httpx2.Request(scope["method"], url, headers=sent, content=body or None, extensions=_TIMES)
            answer = await self._client.send(onward, stream=True)
        except httpx2.HTTPError:
            await refuse(send, 502, "temporal_ui", "Temporal's UI does not answer; see the server's log")
            return
        try:
            await _response(answer)(scope, receive, send)
        finally:
            await answer.aclose()


def _response(answer: httpx2.Response) -> Response:
    response = StreamingResponse(answer.aiter_raw(), status_code=answer.status_code)
    for name, value in answer.headers.multi_items():
        if name not in _PER_CONNECTION and not name.startswith(_CORS):
            response.headers.append(name, value)
    for name, value in _ADDED:
        if name == "content-security-policy":
            response.headers.append(name, value)
        else:
            response.headers[name] = value
    return response
