"""Hands the reply to an action to the vendor's open request, if the vendor shows its response to the person."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from signoff.channels.envelopes import ChannelReply


class ReplySlot:
    """One open request."""

    def __init__(self) -> None:
        self._reply: asyncio.Future[ChannelReply | None] = asyncio.get_running_loop().create_future()

    async def wait(self, seconds: float) -> ChannelReply | None:
        """Return the reply, or None if there is none in time. A later reply is then sent as a message."""
        with suppress(TimeoutError):
            return await asyncio.wait_for(self._reply, seconds)
        return None

    def give(self, reply: ChannelReply | None) -> bool:
        """Return whether the request still waits."""
        if self._reply.done():
            return False
        self._reply.set_result(reply)
        return True


class ReplySlots:
    """The open requests of one process. An action that another process takes gets its reply as a message."""

    def __init__(self) -> None:
        self._slots: dict[str, ReplySlot] = {}

    @contextmanager
    def open(self, arrival: str) -> Iterator[ReplySlot]:
        """Open a slot for the row `arrival`, before the row can be claimed."""
        slot = self.make()
        # A repetition during the wait must not take the reply from the first request.
        first = self._slots.setdefault(arrival, slot) is slot
        try:
            yield slot
        finally:
            if first:
                self._slots.pop(arrival, None)

    def make(self) -> ReplySlot:
        return ReplySlot()

    def give(self, arrival: str, reply: ChannelReply | None) -> bool:
        """Return whether a request takes the reply. None ends its wait without a reply."""
        slot = self._slots.get(arrival)
        return slot is not None and slot.give(reply)
