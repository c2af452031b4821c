"""Reads the JSON bodies of routes instead of FastAPI's own reader."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from signoff.contracts.errors import BadRequest
from signoff.formats.json_reader import NotJson, read_json


def read_body(body: bytes, *, status: int = 422) -> Any:
    """Raises `BadRequest` with `status` for a body that is not JSON."""
    try:
        return read_json(body)
    except NotJson as error:
        raise BadRequest(f"the body {error}", status=status) from None


class JsonRoute(APIRoute):
    """A route whose JSON body is read by `read_body`. Every route with a declared body is one."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def read_and_handle(request: Request) -> Response:
            body = await request.body() if self.body_field is not None else b""
            # Read it before FastAPI, which turns every other error into a 400 without a message.
            return await handle(_ReadRequest(request, read_body(body)) if body else request)

        return read_and_handle


class _ReadRequest(Request):
    """A request with an already parsed body."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._request = request
        self._value = value

    async def body(self) -> bytes:
        return await self._request.body()

    async def json(self) -> Any:
        return self._value
