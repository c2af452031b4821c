"""Receives the messages of all channels: verifies, parses and stores them before the vendor gets its response.

Waits for no turn, except for a reply that the vendor shows at once.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from pydantic_core import PydanticSerializationError

from signoff.approvals.audit_events import admin_entry
from signoff.audit.rate_limit import RecordRateLimit
from signoff.channels.answer_text.answer_parser import READ_CHARS
from signoff.channels.base import Channel
from signoff.channels.channel_errors import Forged, Malformed
from signoff.channels.envelopes import InboundBatch, InboundRequest
from signoff.channels.inbound.reply_slots import ReplySlots
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import Clock
from signoff.contracts.errors import NotFound, StoreUnavailable, Unavailable
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.replace import replace
from signoff.store.inbound_queue import InboundQueue, arrival_key
from signoff.store.messages.contacts import ChannelContacts
from signoff.store.store import Store

READERS: Final = 2
"""Threads that read for one channel. A channel with long messages therefore delays no other channel."""
Record: TypeAlias = Callable[[Sequence[AuditEntry]], Awaitable[int]]
"""Stores audit entries, each once. Returns the number of new ones. Raises `StoreUnavailable`."""
_log = logging.getLogger(__name__)


class InboundReceiver:
    """Takes raw messages from the gateway's routes, or from the channel that fetched them.

    Calls `woken` if a message is new.
    """

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        record: Record,
        clock: Clock,
        woken: Callable[[], None] = lambda: None,
        replies: ReplySlots | None = None,
    ) -> None:
        """The processor in this process puts its replies into `replies`."""
        self._store = store
        self._arrivals = InboundQueue(store)
        self._channels = channels
        self._record = record
        self._clock = clock
        self._woken = woken
        self._replies = replies or ReplySlots()
        self._readers = {name: ThreadPoolExecutor(READERS, f"signoff-{name}") for name in channels}
        self._forged = {name: RecordRateLimit() for name in channels}

    def channel(self, name: str) -> Channel | None:
        """Return a running channel."""
        return self._channels.get(name)

    def max_bytes(self, name: str) -> int | None:
        """`None` for an unknown channel."""
        channel = self._channels.get(name)
        return None if channel is None else channel.max_bytes

    async def take(self, name: str, raw: InboundRequest, *, waits: bool = False) -> InboundBatch:
        """Verify, read and store one message.

        Once this returns, it will be processed once, even after a crash. A message that is already stored changes
        nothing. Only a `POST` is stored. With `waits`, the response has the reply to a new action, if the vendor shows
        it. Raises `NotFound` for an unknown channel, `Forged`, `Malformed`, `Unavailable`.
        """
        channel = self._channels.get(name)
        if channel is None:
            raise NotFound("there is no such channel")
        received = await self._read(name, channel, raw)
        # Scanners and link previews open every address that they see, so a GET must never count.
        if raw.method != "POST":
            return received
        if received.contacts:
            handles = {each.identity: each.handle for each in received.contacts}
            await ChannelContacts(self._store, name).keep(handles)
        if not (received.actions or received.statuses):
            return received
        if not waits or not received.reply_seconds:
            await self._put(name, received)
            return received
        # Open the slot before the row exists: the processor may take the row at once.
        with self._replies.open(arrival_key(name, "action", received.actions[0].key)) as slot:
            if not await self._put(name, received):
                return received
            reply = await slot.wait(received.reply_seconds)
        return received if reply is None else channel.respond(received, reply)

    async def _put(self, name: str, received: InboundBatch) -> int:
        """Return the number of new messages."""
        # An email may have megabytes, and the rest is never read. Keep one character more than the reader uses, so that
        # it sees that the text was longer.
        actions = [replace(each, text=each.text[: READ_CHARS + 1]) for each in received.actions]
        try:
            new = await self._arrivals.put(name, actions, received.statuses)
        # JSON may have half of a surrogate pair (`"\ud800"`), which Python reads but UTF-8 cannot encode.
        except PydanticSerializationError:
            raise Malformed("it holds text that is none") from None
        if new:
            self._woken()
        for _ in range(len(actions) + len(received.statuses) - new):
            self._store.count_refusal("replayed")
        return new

    async def _read(self, name: str, channel: Channel, raw: InboundRequest) -> InboundBatch:
        try:
            return await channel.read(raw, self._readers[name])
        except Forged:
            self._store.count_refusal("forged")
            await self._note_forged(name)
            raise
        # The vendor repeats a message for which there is no room now. As `Malformed` it would be lost, so that a flood
        # would also lose honest answers.
        except Unavailable:
            raise
        except Malformed as error:
            self._store.count_refusal("malformed")
            _log.warning("a message on `%s` cannot be read: %r", name, error.message)
            raise
        except Exception as error:
            # Channel adapters are third-party code, and their errors may quote the message.
            self._store.count_refusal("malformed")
            _log.warning("a message on `%s` cannot be read: %s", name, type(error).__name__)
            raise Malformed("it cannot be read") from None

    async def _note_forged(self, name: str) -> None:
        now = self._clock()
        more = self._forged[name].admit(now)
        if more is None:
            return
        entry = admin_entry(
            DEFAULT_TENANT, "forged message", "", now, kind="attempt", channel=name, more_before=more or None
        )
        try:
            await self._record([entry])
        # Refuse a forged message with 401 in any case, so that an attacker does not learn the state of the store.
        except StoreUnavailable as error:
            _log.warning("not recorded: a forged message on `%s` (%s)", name, error.message)

    def close(self) -> None:
        """Does not wait for running work."""
        for readers in self._readers.values():
            readers.shutdown(wait=False, cancel_futures=True)
