"""Limits live streams and held requests: a number for each person, and only while the reader has access."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, NewType, TypeAlias

from starlette.requests import Request
from starlette.responses import StreamingResponse

from signoff.contracts.errors import BadRequest, SignoffError
from signoff.contracts.limits import STREAMS_OF_ONE
from signoff.contracts.person import Person
from signoff.gateway.auth.authenticator import Authenticator
from signoff.gateway.auth.caller import AuthenticatedCaller, SignInNeeded, caller_of
from signoff.gateway.auth.dependencies import access_of_request
from signoff.gateway.transport.middleware import RETRY_SECONDS

Allowed: TypeAlias = Callable[[Person], Awaitable[bool]]
"""Returns whether a person may continue to follow a stream."""
HeldSeconds = NewType("HeldSeconds", float)
"""Seconds for which a request may be held. Only `waiting` makes them, so no route holds requests uncounted."""
NOT_HELD: Final = HeldSeconds(0.0)
_PAUSE_SECONDS: Final = 1
"""Seconds between two answers about one thing to a person without a free stream."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""How often the access of a stream's reader is checked."""


class Streams:
    """Counts the open streams of each person, and ends streams whose reader has lost access."""

    def __init__(self, authenticator: Authenticator, clock: Callable[[], datetime]) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._hurried: dict[tuple[str, str], float] = {}

    def respond(
        self, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
    ) -> StreamingResponse:
        """Raises `BadRequest` (429): each stream holds a connection."""
        self.refuse_more(request)
        # nginx buffers proxied responses; events would arrive late and in bursts.
        headers = {"x-accel-buffering": "no"}
        known = self._yield_while_known(request, events, allowed)
        return StreamingResponse(known, media_type="text/event-stream", headers=headers)

    @contextlib.asynccontextmanager
    async def hold(self, request: Request) -> AsyncIterator[None]:
        """Count a slow answer as a stream.

        Raises `BadRequest` (429), and at the end `SignInNeeded` if the sender has lost access.
        """
        self.refuse_more(request)
        async with self._count(caller_of(request)):
            yield
        if caller_of(request) is not None and not await self._still(request, None):
            raise SignInNeeded("your access ended during the request; sign in again")

    @contextlib.asynccontextmanager
    async def waiting(self, request: Request, seconds: float, about: str) -> AsyncIterator[HeldSeconds]:
        """Count a waiting request as a stream, and yield the seconds for which it may be held.

        Yields 0 if the sender has no free stream: answer at once, with `Retry-After`. Raises `BadRequest` (429) if the
        same sender got such an answer about the same thing within the last second. Raises `SignInNeeded` like `hold`.
        An empty `about` never raises 429: use it for acts that have happened.
        """
        if seconds <= 0:
            yield NOT_HELD
        elif self.check_room(request):
            async with self.hold(request):
                yield HeldSeconds(seconds)
        else:
            self._pace(request, about)
            yield NOT_HELD

    def check_room(self, request: Request) -> bool:
        """If the sender has no free stream, the answer gets the header `Retry-After`."""
        caller = caller_of(request)
        is_free = caller is None or self._open[_owner(caller)] < STREAMS_OF_ONE
        if not is_free:
            request.scope[RETRY_SECONDS] = _PAUSE_SECONDS
        return is_free

    def refuse_more(self, request: Request) -> None:
        """Raise `BadRequest` (429) if the sender has no free stream."""
        if not self.check_room(request):
            raise _too_many()

    def _pace(self, request: Request, about: str) -> None:
        caller, now = caller_of(request), asyncio.get_running_loop().time()
        if caller is None or not about:
            return
        # A client that ignores `Retry-After` must not cost more than a waiting client.
        self._hurried = {name: at for name, at in self._hurried.items() if now - at < _PAUSE_SECONDS}
        name = (_owner(caller), about)
        if name in self._hurried:
            raise _too_many()
        self._hurried[name] = now

    async def _yield_while_known(
        self, request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None
    ) -> AsyncIterator[str]:
        """Ends when the reader signs out, is revoked, disconnects, or is not `allowed`.

        A stream may outlast its reader's access by hours.
        """
        checked_at = self._clock()
        async with contextlib.aclosing(events), self._count(caller_of(request)):
            async for event in events:
                # Heartbeats pass here too, so the readers of silent streams are also checked.
                if caller_of(request) is not None and self._clock() - checked_at >= LOOK_AGAIN:
                    if not await self._still(request, allowed):
                        return
                    checked_at = self._clock()
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
        # If the store is down, end the stream: the reader's access cannot be checked.
        except SignoffError:
            return False


def streams_of(request: Request) -> Streams:
    streams: Streams = request.app.state.streams
    return streams


def waiting(request: Request, seconds: float, about: str) -> AbstractAsyncContextManager[HeldSeconds]:
    """See `Streams.waiting`."""
    return streams_of(request).waiting(request, seconds, about)


def stream_events(
    request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
) -> StreamingResponse:
    """Stream while the sender has access and is `allowed`."""
    return streams_of(request).respond(request, events, allowed)


def _too_many() -> BadRequest:
    message = f"you have {STREAMS_OF_ONE} open streams already; close some first"
    return BadRequest(message, status=429, code="streams", after=_PAUSE_SECONDS)


def _owner(caller: AuthenticatedCaller) -> str:
    return f"{caller.person.tenant}/{caller.person.id}"
