"""Bounds live streams: so many for one person, and each only for as long as its reader is let in."""

import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import StreamingResponse

from signoff.contracts.errors import SignoffError
from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.contracts.person import Person
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import AuthenticatedCaller, SignInNeeded, caller_of
from signoff.gateway.auth.dependencies import access_of_request
from signoff.gateway.errors import BadRequest

Allowed: TypeAlias = Callable[[Person], Awaitable[bool]]
"""Whether a person may go on following something."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""How often it is asked whether whoever follows live updates is still let in."""


class Streams:
    """Counts who follows how many streams, and ends those of readers who are not let in any more."""

    def __init__(self, authenticator: Authenticator, clock: Callable[[], datetime]) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._open: Counter[str] = Counter()

    def respond(
        self, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
    ) -> StreamingResponse:
        """Streams `events` to whoever sent `request`. Raises `BadRequest` (429): each stream holds a connection."""
        self.refuse_more(request)
        # nginx holds back what it proxies until a buffer is full; events would come late and in heaps.
        headers = {"x-accel-buffering": "no"}
        known = self._yield_while_known(request, events, allowed)
        return StreamingResponse(known, media_type="text/event-stream", headers=headers)

    @contextlib.asynccontextmanager
    async def hold(self, request: Request) -> AsyncIterator[None]:
        """Counts an answer that is long in coming as a stream.

        Raises `BadRequest` (429) as `respond`, and at its end `SignInNeeded` for who is not let in any more.
        """
        self.refuse_more(request)
        async with self._count(caller_of(request)):
            yield
        if caller_of(request) is not None and not await self._still(request, None):
            raise SignInNeeded("this is not let in any more")

    def refuse_more(self, request: Request) -> None:
        """Raises `BadRequest` (429) where whoever sent `request` follows as many streams as one may."""
        caller = caller_of(request)
        if caller is not None and self._open[_owner(caller)] >= STREAMS_OF_ONE:
            message = f"you follow {STREAMS_OF_ONE} streams already; close some first"
            raise BadRequest(message, status=429, code="streams")

    async def _yield_while_known(
        self, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None
    ) -> AsyncIterator[str]:
        """Gives `events` until their reader is signed out, revoked, gone, or not `allowed` any more.

        A stream may outlast that by hours.
        """
        looked = self._clock()
        async with contextlib.aclosing(events), self._count(caller_of(request)):
            async for event in events:
                # Heartbeats pass here, too, so that the reader of a silent stream is looked at as well.
                if caller_of(request) is not None and self._clock() - looked >= LOOK_AGAIN:
                    if not await self._still(request, allowed):
                        return
                    looked = self._clock()
                yield event

    @contextlib.asynccontextmanager
    async def _count(self, caller: AuthenticatedCaller | None) -> AsyncIterator[None]:
        if caller is None:
            yield
            return
        owner = _owner(caller)
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            if not self._open[owner]:
                del self._open[owner]

    async def _still(self, request: Request, allowed: Allowed | None) -> bool:
        credential = access_of_request(request).credential
        try:
            caller = None if credential is None else await self._authenticator.look(request, credential)
            return caller is not None and (allowed is None or await allowed(caller.person))
        # A store that is away ends the stream: nobody can say that its reader is still let in.
        except SignoffError:
            return False


def stream_events(
    request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
) -> StreamingResponse:
    """Answers with server-sent events for as long as whoever sent `request` is let in and, where asked, `allowed`."""
    streams: Streams = request.app.state.streams
    return streams.respond(request, events, allowed)


def _owner(caller: AuthenticatedCaller) -> str:
    return f"{caller.person.tenant}/{caller.person.id}"
