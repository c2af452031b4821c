"""What nobody expected: answered by one sentence with an id, which the log has beside what went wrong."""

import logging
import secrets
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.gateway.faults import Fault

_log = logging.getLogger(__name__)

Answer = Callable[[Request, Fault, int], Awaitable[Response]]


class Failing:
    """Catches what a handler let through. The traceback may hold what arguments held: it is logged as debug."""

    def __init__(self, app: ASGIApp, answer: Answer) -> None:
        self._app = app
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
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
            name = secrets.token_hex(4)
            # As Python writes it: a `%0A` in an address would begin a line of its own, as whoever wrote it likes.
            _log.error("%s %r failed, id %s (%s)", scope["method"], scope["path"], name, type(error).__name__)
            _log.debug("id %s", name, exc_info=error)
            if not begun:
                told = f"something went wrong here; the gateway's log has it under the id {name}"
                response = await self._answer(Request(scope, receive), Fault(code="internal", message=told), 500)
                await response(scope, receive, send)
