"""Asks who sends a request before its body is read: without a token or a cookie nobody has anything parsed."""

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
    """Has the access of its route admit every request that brings a body, and answers those that it refuses.

    FastAPI reads and parses a body before it asks any dependency, the access among them.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable, answer: Answer) -> None:
        self._app = app
        self._routes = routes
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] == "http" and scope["path"].startswith(_API) and (why := self._routes.misplaced_person(scope)):
            response = await self._answer(Request(scope), BadRequest(why))
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
            # What else comes is the body of somebody who is not let in.
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        await self._app(scope, receive, _forget_lists(send, request.app.state.deps.lists))


def _forget_lists(send: Send, lists: ListReads) -> Send:
    """Share no list that was read before an answer: its request may have changed it."""

    async def forget(message: Message) -> None:
        if message["type"] == "http.response.start":
            lists.forget()
        await send(message)

    return forget
