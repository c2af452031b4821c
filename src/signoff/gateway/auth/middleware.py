"""Authenticates a request before its body is read, so that the gateway parses no stranger's body."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.contracts.errors import BadRequest, SignoffError
from signoff.gateway.auth.route_table import RouteTable
from signoff.gateway.load_limits import ListReads
from signoff.gateway.transport.body_limit import READING

Answer = Callable[[Request, SignoffError], Awaitable[Response]]

_API: Final = "/v1/"


class AuthenticationMiddleware:
    """Checks the route's access for every request with a body.

    FastAPI would read and parse the body before it checks any dependency, including the access.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable, answer: Answer) -> None:
        self._app = app
        self._routes = routes
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and scope["path"].startswith(_API)
            and (problem := self._routes.misplaced_person(scope))
        ):
            response = await self._answer(Request(scope), BadRequest(problem))
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        access = None if scope["type"] != "http" or scope["method"] in READING else self._routes.access(scope)
        if access is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            await access.admit(request)
        except SignoffError as error:
            response = await self._answer(request, error)
            # The rest of the connection is the body of a refused client: do not read it.
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        await self._app(scope, receive, _forget_lists(send, request.app.state.deps.lists))


def _forget_lists(send: Send, lists: ListReads) -> Send:
    """Discard shared lists before an answer: its request may have changed them."""

    async def forget(message: Message) -> None:
        if message["type"] == "http.response.start":
            lists.forget()
        await send(message)

    return forget
