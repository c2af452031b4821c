"""Receives messages of all channels: verify, parse, keep; only then does the vendor get its answer.

Nothing waits for a turn.
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
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import Clock
from signoff.contracts.errors import NotFound, StoreUnavailable, Unavailable
from signoff.contracts.names import DEFAULT_TENANT
from signoff.formats.replace import replace
from signoff.store.inbound_queue import InboundQueue
from signoff.store.store import Store

READERS: Final = 2
"""Threads that read for one channel: one that is given long messages holds up no other channel."""
Record: TypeAlias = Callable[[Sequence[AuditEntry]], Awaitable[int]]
"""Writes entries down, each once; how many were new. Raises `StoreUnavailable`."""
_log = logging.getLogger(__name__)


class InboundReceiver:
    """Takes raw messages for `channels`, whoever brings them: the gateway's routes, or the channel that fetched them.

    `woken` is called when there is something new to hear.
    """

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        record: Record,
        clock: Clock,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._arrivals = InboundQueue(store)
        self._channels = channels
        self._record = record
        self._clock = clock
        self._woken = woken
        self._readers = {name: ThreadPoolExecutor(READERS, f"signoff-{name}") for name in channels}
        self._forged = {name: RecordRateLimit() for name in channels}

    def max_bytes(self, name: str) -> int | None:
        """Returns bytes of the largest message of a channel; None for no channel of ours."""
        channel = self._channels.get(name)
        return None if channel is None else channel.max_bytes

    async def take(self, name: str, raw: InboundRequest) -> InboundBatch:
        """Verifies, reads and keeps one message; when this returns it is heard, once, whatever happens.

        A message kept before changes nothing. Only a `POST` says something. Raises `NotFound` for no such channel,
        `Forged`, `Malformed`, `Unavailable`.
        """
        channel = self._channels.get(name)
        if channel is None:
            raise NotFound("there is no such channel")
        received = await self._read(name, channel, raw)
        # Scanners and previews follow any address that they see, so that a GET must never say anything.
        if raw.method != "POST" or not (received.actions or received.statuses):
            return received
        # More is never read, and a mail may be of megabytes.
        # One more than is read: who reads it sees that there was more.
        actions = [replace(each, text=each.text[: READ_CHARS + 1]) for each in received.actions]
        try:
            new = await self._arrivals.put(name, actions, received.statuses)
        # JSON may hold half of a surrogate pair (`"\ud800"`), which Python reads and UTF-8 cannot write.
        except PydanticSerializationError:
            raise Malformed("it holds text that is none") from None
        if new:
            self._woken()
        for _ in range(len(actions) + len(received.statuses) - new):
            self._store.count_refusal("replayed")
        return received

    async def _read(self, name: str, channel: Channel, raw: InboundRequest) -> InboundBatch:
        try:
            return await channel.read(raw, self._readers[name])
        except Forged:
            self._store.count_refusal("forged")
            await self._note_forged(name)
            raise
        # What has no room now is brought again: lost as `Malformed`, a flood would take honest answers with it.
        except Unavailable:
            raise
        except Malformed as error:
            self._store.count_refusal("malformed")
            _log.warning("a message on `%s` cannot be read: %r", name, error.message)
            raise
        except Exception as error:
            # Adapters are anybody's code, and their errors may show what was sent.
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
        # What is forged is refused with 401 all the same, and nobody learns how our store is.
        except StoreUnavailable as error:
            _log.warning("not recorded: a forged message on `%s` (%s)", name, error.message)

    def close(self) -> None:
        """Lets the readers go; what they read is not waited for."""
        for readers in self._readers.values():
            readers.shutdown(wait=False, cancel_futures=True)
