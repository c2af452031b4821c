"""Limits for request bodies before anything reads them: bytes, seconds, and totals of all requests."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from signoff.contracts.limits import (
    BODIES_AT_ONCE,
    BODY_BYTES_AT_ONCE,
    BODY_BYTES_PER_SECOND,
    BODY_GRACE_SECONDS,
    BODY_SECONDS,
    SENDER_SHARE,
)
from signoff.store.refusal_counts import RefusalKind

READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing and have no body."""
_AGAIN_SECONDS: Final = b"2"


class BodyRefused(Exception):
    """Raised for a body beyond a limit."""

    def __init__(self, status: int, kind: RefusalKind, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


class BodyQuota:
    """Counts the bodies being received and the bytes held, in total and by address."""

    def __init__(self) -> None:
        self._reading: Counter[str] = Counter()
        self._held: Counter[str] = Counter()

    def begin(self, sender: str) -> None:
        """Raises `BodyRefused` if too many bodies are being received."""
        if _full(self._reading, sender, 1, BODIES_AT_ONCE):
            raise BodyRefused(503, "busy", "too many requests are being received; try again")
        self._reading[sender] += 1

    def end(self, sender: str) -> None:
        self._reading[sender] -= 1
        _drop(self._reading, sender)

    def hold(self, sender: str, size: int) -> None:
        """Raises `BodyRefused` if too many bytes are held."""
        if _full(self._held, sender, size, BODY_BYTES_AT_ONCE):
            raise BodyRefused(503, "busy", "too many bytes are being received; try again")
        self._held[sender] += size

    def release(self, sender: str, size: int) -> None:
        self._held[sender] -= size
        _drop(self._held, sender)


class BodyLimit:
    """Reads a request's whole body before the application sees the request.

    `allowed` maps a request's scope to its most bytes, or `None` if no route takes the request. `refused` is called for
    each refusal. If a client disconnects, it gets no response and its partial request is dropped.
    """

    def __init__(
        self, app: ASGIApp, allowed: Callable[[Scope], int | None], refused: Callable[[RefusalKind], None]
    ) -> None:
        self._app = app
        self._allowed = allowed
        self._refused = refused
        self._quota = BodyQuota()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        sender = (scope.get("client") or ("", 0))[0]
        held = _Held(self._quota, sender)
        try:
            body = await self._read(scope, receive, held)
            if body is not None:
                await self._app(scope, _Replay(body, receive), send)
        except BodyRefused as error:
            self._refused(error.kind)
            await refuse(send, error.status, error.kind, error.message)
        finally:
            held.release()

    async def _read(self, scope: Scope, receive: Receive, held: "_Held") -> bytes | None:
        """Return `None` if the client disconnected. Raises `BodyRefused`."""
        max_bytes = self._allowed(scope)
        if max_bytes is None:
            raise BodyRefused(404, "unknown", "there is nothing at this address")
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdecimal() and int(declared) > max_bytes:
            raise too_large(max_bytes)
        self._quota.begin(held.sender)
        try:
            return await _whole(receive, max_bytes, held)
        finally:
            self._quota.end(held.sender)


class _Held:
    """The part of the quota that one request holds."""

    def __init__(self, quota: BodyQuota, sender: str) -> None:
        self.sender = sender
        self._quota = quota
        self._size = 0

    def add(self, size: int) -> None:
        """Raises `BodyRefused`."""
        self._quota.hold(self.sender, size)
        self._size += size

    def release(self) -> None:
        self._quota.release(self.sender, self._size)
        self._size = 0


class _Replay:
    """Replays a body that was read before, then passes on the connection's later messages."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def too_large(max_bytes: int) -> BodyRefused:
    return BodyRefused(413, "too_large", f"a request is at most {max_bytes} bytes")


async def refuse(send: Send, status: int, code: str, message: str) -> None:
    """Close the connection, without waiting for the rest of the body."""
    body = json.dumps({"code": code, "message": message}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 503:
        headers.append((b"retry-after", _AGAIN_SECONDS))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _whole(receive: Receive, max_bytes: int, held: _Held) -> bytes | None:
    body = bytearray()
    begun = asyncio.get_running_loop().time()
    while True:
        # Each byte extends the deadline a little, up to a fixed end. A client cannot send one byte a minute.
        patience = min(BODY_SECONDS, BODY_GRACE_SECONDS + len(body) / BODY_BYTES_PER_SECOND)
        try:
            async with asyncio.timeout_at(begun + patience):
                message = await receive()
        except TimeoutError:
            words = (
                f"the body came too slowly; at least {BODY_BYTES_PER_SECOND} bytes a second, within {BODY_SECONDS:g} s"
            )
            raise BodyRefused(408, "too_slow", words) from None
        # Drop a partial body: half a form could parse as a complete form with fewer fields.
        if message["type"] == "http.disconnect":
            return None
        piece = message.get("body", b"")
        # Count the bytes that arrive: the declared length may be false.
        if len(body) + len(piece) > max_bytes:
            raise too_large(max_bytes)
        held.add(len(piece))
        body += piece
        if not message.get("more_body", False):
            return bytes(body)


def _full(used: Counter[str], sender: str, more: int, limit: int) -> bool:
    # Each address has a share, so that one address cannot block all others.
    return used.total() + more > limit or used[sender] + more > limit // SENDER_SHARE


def _drop(used: Counter[str], sender: str) -> None:
    if used[sender] <= 0:
        del used[sender]
