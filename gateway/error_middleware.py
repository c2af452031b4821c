"""Answers errors that nobody expected by one sentence with an id, under which the log has what went wrong."""

import logging
import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.contracts.receipt import Receipt
from signoff.contracts.responses import Fault

_log = logging.getLogger(__name__)

Answer = Callable[[Request, Fault, int], Awaitable[Response]]


def unexpected_receipt(approval_id: str, error: Exception) -> Receipt:
    """Returns the receipt of an answer that failed as nobody expected: it may have counted, so it is not refused."""
    name = _logged(f"an answer to {approval_id!r}", error)
    told = f"something went wrong here, and it may have counted; the gateway's log has it under the id {name}"
    return Receipt(status="pending", approval_id=approval_id, message=told)


def _logged(what: str, error: Exception) -> str:
    name = secrets.token_hex(4)
    _log.error("%s failed, id %s (%s)", what, name, type(error).__name__)
    _log.debug("id %s", name, exc_info=error)
    return name


class ErrorMiddleware:
    """Catches what a handler let through. The traceback may hold what arguments held: it is logged as debug."""

    def __init__(self, app: ASGIApp, answer: Answer) -> None:
        self._app = app
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except ClientDisconnect:
            # Nobody is there to be answered, and a stranger who breaks off must not fill the log.
            return
        except Exception as error:
            # As Python writes it: a `%0A` in an address would begin a line of its own, as whoever wrote it likes.
            name = _logged(f"{scope['method']} {scope['path']!r}", error)
            if not begun:
                told = f"something went wrong here; the gateway's log has it under the id {name}"
                response = await self._answer(Request(scope, receive), Fault(code="internal", message=told), 500)
                await response(scope, receive, send)
