"""One turn, followed over HTTP."""

import asyncio
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from signoff.client.transport import Transport
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.responses import Fault, TurnCancelled, TurnLinks
from signoff.contracts.session_messages import SessionView
from signoff.contracts.turn import CallView, TurnResult, TurnView

PAUSE_SECONDS: Final = 1.0
"""Pause before a new connection when a stream has ended."""
OUTAGE_SECONDS: Final = 60.0
"""Time that a waiting client reconnects without success: gateways and workers restart while people decide."""


@dataclass(frozen=True)
class TurnHandle:
    """Follows one turn, running or ended. Methods raise the same errors as in `Client`."""

    _transport: Transport
    key: TurnKey
    links: TurnLinks | None = None
    """`None` for a turn that this client did not start."""
    joins: bool = False
    """Whether it answers a message that its session may still hold."""

    @property
    def id(self) -> str:
        """`<tenant>.<session>.<turn>`."""
        return ".".join(self.key)

    async def view(self) -> TurnView:
        """Return the turn's current view, with masked secrets."""
        return await self._transport.call(TurnView, "GET", f"/v1/turns/{self.id}")

    async def watch(self) -> AsyncGenerator[TurnView]:
        """Yield the turn at each change until it ends. Reconnects if a stream ends earlier.

        Raises `ServerUnavailable` if the gateway cannot send more.
        """
        while True:
            view: TurnView | None = None
            try:
                async for name, data in self._transport.events(f"/v1/turns/{self.id}/events"):
                    if name != "turn":
                        raise ServerUnavailable(self._transport.read(Fault, data).message)
                    view = self._transport.read(TurnView, data)
                    yield view
            except NotFound:
                if not (self.joins and await self._is_to_begin()):
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if view is None:
                raise ServerUnavailable(f"the gateway at {self._transport.url} sends no more about `{self.id}`")
            if view.result is not None:
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def _is_to_begin(self) -> bool:
        session = await self._transport.call(SessionView, "GET", f"/v1/sessions/{self.key.tenant}.{self.key.session}")
        held = (*(each.message_id for each in session.queued), *(each.turn for each in session.turns))
        return self.key.turn in held

    async def pending(self) -> AsyncGenerator[ApprovalRequest]:
        """Yield each pending request of the turn in full, as soon as it opens, until the turn ends.

        A request that is asked again is yielded again, as its next revision. Raises `ServerUnavailable` after
        `OUTAGE_SECONDS` of failures.
        """
        yielded: set[tuple[str, int]] = set()
        outage = _Outage()
        while True:
            try:
                async with aclosing(self.watch()) as views:
                    async for view in views:
                        for call in view.calls:
                            request = await self._find_request(call, yielded)
                            if request is not None:
                                yielded.add((request.id, request.revision))
                                yield request
                        outage.end()
                return
            except ServerUnavailable as error:
                await outage.outlast(error)

    async def result(self) -> TurnResult:
        """Wait for the result of the turn. A failure or cancellation is in its `state`.

        Raises `ServerUnavailable` after `OUTAGE_SECONDS` of failures.
        """
        outage = _Outage()
        while True:
            try:
                async with aclosing(self.watch()) as views:
                    async for view in views:
                        if view.result is not None:
                            return view.result
                        outage.end()
            except ServerUnavailable as error:
                await outage.outlast(error)

    async def _find_request(self, call: CallView, yielded: Collection[tuple[str, int]]) -> ApprovalRequest | None:
        seen = call.approval
        if seen is None or seen.state != "pending" or (seen.id, seen.revision) in yielded:
            return None
        request = await self._transport.call(ApprovalRequest, "GET", f"/v1/approvals/{seen.id}")
        # In the meantime it may have been decided, or replaced by a new revision.
        return request if request.state == "pending" and (request.id, request.revision) not in yielded else None

    async def cancel(self, *, by: str = "") -> str:
        """Ask the turn to stop, as `by`, without waiting for its end.

        Returns `cancelling`, or the end state of a turn that has ended.
        """
        path = f"/v1/turns/{self.id}/cancel"
        # JSON, although empty: the gateway ignores requests that a form on another site could send.
        return (await self._transport.call(TurnCancelled, "POST", path, json={}, params={"as": by} if by else {})).state


class _Outage:
    def __init__(self) -> None:
        self._since: float | None = None

    def end(self) -> None:
        self._since = None

    async def outlast(self, error: ServerUnavailable) -> None:
        """Pause before the next attempt. Raises `error` after `OUTAGE_SECONDS`."""
        now = time.monotonic()
        self._since = self._since if self._since is not None else now
        if now - self._since >= OUTAGE_SECONDS:
            raise error
        await asyncio.sleep(PAUSE_SECONDS)
