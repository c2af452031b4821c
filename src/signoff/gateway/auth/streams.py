"""Bounds live streams and held requests: so many for one person, each only for as long as its reader is let in."""

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
"""Whether a person may go on following something."""
HeldSeconds = NewType("HeldSeconds", float)
"""Seconds for which a request may be held. `waiting` alone makes them, so that no route holds requests uncounted."""
NOT_HELD: Final = HeldSeconds(0.0)
_PAUSE_SECONDS: Final = 1
"""Seconds between two answers about one thing to a person who has no stream left."""
LOOK_AGAIN: Final = timedelta(seconds=10)
"""How often it is asked whether whoever follows live updates is still let in."""


class Streams:
    """Counts who follows how many streams, and ends those of readers who are not let in any more."""

    def __init__(self, authenticator: Authenticator, clock: Callable[[], datetime]) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._open: Counter[str] = Counter()
        self._hurried: dict[tuple[str, str], float] = {}

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

    @contextlib.asynccontextmanager
    async def waiting(self, request: Request, seconds: float, about: str) -> AsyncIterator[HeldSeconds]:
        """Counts a request that waits as a stream, and yields the seconds for which it may be held.

        They are 0 where its sender has no stream left: the request is answered at once, with `Retry-After`. Raises
        `BadRequest` (429) where the same sender was answered so about the same thing within the last second, and
        `SignInNeeded` as `hold`. With an empty `about` it raises no 429, for acts that have happened.
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
        """Returns whether its sender has a stream left; if not, the answer gets the header `Retry-After`."""
        caller = caller_of(request)
        is_free = caller is None or self._open[_owner(caller)] < STREAMS_OF_ONE
        if not is_free:
            request.scope[RETRY_SECONDS] = _PAUSE_SECONDS
        return is_free

    def refuse_more(self, request: Request) -> None:
        """Raises `BadRequest` (429) where whoever sent `request` follows as many streams as one may."""
        if not self.check_room(request):
            raise _too_many()

    def _pace(self, request: Request, about: str) -> None:
        caller, now = caller_of(request), asyncio.get_running_loop().time()
        if caller is None or not about:
            return
        # A client that asks again at once, whatever it was told, must not cost more than one that waits.
        self._hurried = {name: at for name, at in self._hurried.items() if now - at < _PAUSE_SECONDS}
        name = (_owner(caller), about)
        if name in self._hurried:
            raise _too_many()
        self._hurried[name] = now

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


def streams_of(request: Request) -> Streams:
    """Returns the streams of the gateway that `request` came to."""
    streams: Streams = request.app.state.streams
    return streams


def waiting(request: Request, seconds: float, about: str) -> AbstractAsyncContextManager[HeldSeconds]:
    """Counts a request that waits; see `Streams.waiting`."""
    return streams_of(request).waiting(request, seconds, about)


def stream_events(
    request: Request, events: AsyncGenerator[str, None], allowed: Allowed | None = None
) -> StreamingResponse:
    """Answers with server-sent events for as long as whoever sent `request` is let in and, where asked, `allowed`."""
    return streams_of(request).respond(request, events, allowed)


def _too_many() -> BadRequest:
    message = f"you follow {STREAMS_OF_ONE} streams already; close some first"
    return BadRequest(message, status=429, code="streams", after=_PAUSE_SECONDS)


def _owner(caller: AuthenticatedCaller) -> str:
    return f"{caller.person.tenant}/{caller.person.id}"
