"""Processes the messages that channels received, and sends the replies.

Reads messages from the store, where the receiver put them: each one is processed after any outage, and decides once.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from signoff.approvals.audit_events import delivery_entry
from signoff.channels.asked_revision import subject_of
from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import SENT, ChannelReply, DeliveryStatus, InboundAction, SentCard
from signoff.channels.inbound.answer_handler import AnswerHandler, DecisionPort
from signoff.channels.inbound.outcome import Outcome
from signoff.channels.inbound.receiver import Record
from signoff.channels.inbound.reply_slots import ReplySlots
from signoff.channels.inbound.sent_mail import note_sent_words
from signoff.channels.outbound.sender import next_channel
from signoff.contracts.clock import Clock
from signoff.contracts.errors import Unavailable
from signoff.formats.replace import replace
from signoff.people.directory import Directory
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.inbound_queue import InboundQueue, InboundRow
from signoff.store.leases import LEASE_SECONDS
from signoff.store.messages.footer_hashes import Footers
from signoff.store.messages.own_messages import OwnMessage, OwnMessages
from signoff.store.store import Store
from signoff.telemetry.stack_trace import trace_without_words

TOTAL_SECONDS: Final = 25.0
"""The limit for all attempts to send one reply: far less than a claim, so that no other process replies as well."""
REPLY_PAUSES: Final = (0.5, 2.0)
"""Seconds after each failed attempt to send a reply."""

_UNKNOWN_CARD_TRIES: Final = 5

TICK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""Answers that are decided in parallel on one channel, each of another person. One person's answers wait in order."""
CLAIMED: Final = 4 * AT_ONCE
"""Rows of one channel that are claimed ahead. A channel with this many is not claimed, so that none blocks others."""
LONGEST_WAIT: Final = 300.0
KEPT: Final = timedelta(days=400)
"""How long received messages are stored: longer than any request is open and any vendor repeats a message."""
STRANGERS_KEPT: Final = timedelta(days=30)
MISREADINGS: Final = 10
"""Attempts after which a message is dropped that fails by a fault of our own, not by an outage."""
_SWEEP_EVERY: Final = timedelta(hours=1)
_BEFORE_THE_END: Final = 5.0
"""The last seconds of a claim, for storing the outcome. No reply is sent in them."""
_log = logging.getLogger(__name__)


class InboundProcessor:
    """Processes the messages of `channels`. Several processes over one store share the work."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        directory: Directory,
        decisions: DecisionPort,
        record: Record,
        clock: Clock,
        *,
        hold: float = 0.0,
    ) -> None:
        """An approval in words waits `hold` seconds for later words of its author."""
        self.replies = ReplySlots()
        self._arrivals = InboundQueue(store)
        self._deliveries = DeliveryQueue(store)
        self._footers = Footers(store)
        self._own_messages = OwnMessages(store)
        self._channels = channels
        self._clock = clock
        self._woken = asyncio.Event()
        self._swept: datetime | None = None
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._answers = AnswerHandler(store, channels, directory, decisions, record, clock, hold=hold)
        self._reports = ReportHandler(self._deliveries, record, clock)
        self._queues: dict[str, deque[tuple[InboundRow, float]]] = {}
        self._speakers: dict[str, asyncio.Task[None]] = {}

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Process messages until cancelled. Then release unfinished ones to other processes at once."""
        failures = 0
        try:
            while True:
                # Clear before the look: a message that arrives during it sets the event again.
                self._woken.clear()
                try:
                    rows = await self._claim()
                    await self._sweep()
                    failures = 0
                except Unavailable as error:
                    failures += 1
                    _log.warning("messages from channels cannot be processed now: %s", error.message)
                    await asyncio.sleep(backoff(failures))
                    continue
                if not rows:
                    await self._rest()
        finally:
            await self._leave()

    async def step(self) -> int:
        """Process the messages that are due now. Returns their number. Raises `StoreUnavailable`."""
        rows = await self._claim()
        while self._speakers:
            await asyncio.wait(self._speakers.values())
        return rows

    async def _claim(self) -> int:
        """Only for channels with room. Returns the number of messages."""
        queued = Counter(row.channel for queue in self._queues.values() for row, _ in queue)
        # More rows of such a channel would wait here until their claim runs out, and each claim counts as an attempt.
        full = [name for name, rows in queued.items() if rows >= CLAIMED]
        # Read the clock before the claim, so that it ends no later by our clock than by the store's.
        claimed = asyncio.get_running_loop().time()
        rows = await self._arrivals.claim(CLAIMED, full)
        for row in rows:
            speaker = _speaker(row)
            self._queues.setdefault(speaker, deque()).append((row, claimed))
            if speaker not in self._speakers:
                self._speakers[speaker] = asyncio.create_task(self._hear_all(speaker))
        return len(rows)

    async def _hear_all(self, speaker: str) -> None:
        """Process one person's messages in order. No person waits for another."""
        queue = self._queues[speaker]
        try:
            while queue:
                # Keep the row in the queue while it is processed: `_leave` releases the rows that are still in it.
                await self._hear(*queue[0])
                queue.popleft()
            # No `await` since the check for an empty queue, so `_claim` cannot have added a row.
            del self._queues[speaker]
        finally:
            del self._speakers[speaker]

    async def _leave(self) -> None:
        # Copy: each task removes itself when it ends.
        speaking = list(self._speakers.values())
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
        left = [row for queue in self._queues.values() for row, _ in queue]
        self._queues, self._speakers = {}, {}
        for row in left:
            await self._given_back(row)

    async def _given_back(self, row: InboundRow) -> None:
        with contextlib.suppress(Unavailable):
            await self._arrivals.reschedule(row.key, 0)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _sweep(self) -> None:
        now = self._clock()
        if self._swept is None or now - self._swept >= _SWEEP_EVERY:
            self._swept = now
            await self._arrivals.sweep(KEPT)
            await self._arrivals.sweep(STRANGERS_KEPT, what="stranger")
            await self._footers.sweep(KEPT)
            await self._own_messages.sweep(KEPT)

    async def _hear(self, row: InboundRow, claimed: float) -> None:
        """Store the outcome, or the time of the next attempt. Raises only if cancelled."""
        try:
            async with self._slots.setdefault(row.channel, asyncio.Semaphore(AT_ONCE)):
                if asyncio.get_running_loop().time() >= claimed + LEASE_SECONDS / 2:
                    # Release it before another process may claim it. Processed twice at once, it would get two replies.
                    await self._given_back(row)
                    return
                made = await self._made_of(row)
            result = made.result
            if made.reply is not None:
                # A slow reply must not hold a slot.
                until = claimed + LEASE_SECONDS - _BEFORE_THE_END
                reply = replace(made.reply, id=made.reply_id(row.key))
                shown = self.replies.give(row.key, reply)
                channel = self._channels[row.channel]
                sent = SentCard() if shown else await send_reply(channel, made.where, reply, until)
                result = None if result is None else {**result, "answered": sent is not None}
                await self._note_reply(row.channel, made, sent)
                await note_sent_words(self._deliveries, made.where, made.reply)
            if made.forgotten:
                # Do not even store the keys of a flood: a stranger could fill the store.
                await self._arrivals.forget(row.key)
            elif made.hold:
                await self._arrivals.hold(row.key, made.hold)
            elif result is not None:
                await self._arrivals.finish(row.key, result, state=made.state)
            # The sweep skips unsettled rows: without an end here, this one would stay in the store for good.
            elif self._clock() - row.received_at < KEPT:
                await self._arrivals.reschedule(row.key, backoff(row.attempts))
            else:
                await self._arrivals.finish(row.key, {"what": "given up"}, state="dropped")
        # Do not count failures of other systems: a long outage would lose answers. Only our own faults count, below.
        except Unavailable as error:
            _log.info("%r is heard later: %s", row.key, error.message)
            await self._again(row)
        # Any other error is a fault with this message. It must neither end its sender's task nor repeat without end.
        except Exception as error:
            _log.error("%r could not be heard: %s", row.key, trace_without_words(error))
            await self._again(row, type(error).__name__ if row.attempts >= MISREADINGS else "")
        finally:
            self.replies.give(row.key, None)

    async def _note_reply(self, channel: str, made: Outcome, sent: SentCard | None) -> None:
        if sent is not None and sent.vendor_id and made.person is not None:
            subjects = tuple(map(subject_of, made.about))
            message = OwnMessage(subjects=subjects, words=tuple(sent.handle.get(SENT, ())))
            await self._own_messages.note(channel, sent.vendor_id, made.person.tenant, made.person.id, message)

    async def _again(self, row: InboundRow, failure: str = "") -> None:
        try:
            if failure:
                await self._arrivals.finish(row.key, {"what": "failed", "why": failure}, state="dropped")
            else:
                await self._arrivals.reschedule(row.key, backoff(row.attempts))
        except Unavailable:
            # The claim ends after a minute, and then any process may take the row.
            _log.warning("the store does not accept the next step of %r", row.key)

    async def _made_of(self, row: InboundRow) -> Outcome:
        channel = self._channels.get(row.channel)
        if channel is None:
            # The channel may be back after the next start. Until then the pauses between attempts grow.
            return Outcome()
        try:
            if row.kind == "status":
                report = DeliveryStatus.model_validate_json(row.body)
                return Outcome(await self._reports.handle(channel, report, row.attempts))
            action = InboundAction.model_validate_json(row.body)
        except ValidationError:
            return Outcome({"what": "unreadable"})
        return await self._answers.handle(channel, action, row)


def backoff(attempts: int) -> float:
    """Return seconds until the next attempt: 1, 2, 4, ... up to 5 minutes."""
    return float(min(LONGEST_WAIT, 2 ** min(max(attempts, 1) - 1, 20)))


def _speaker(row: InboundRow) -> str:
    """Return the key of the queue in which an arrival keeps its order: its sender, or a channel's status reports."""
    if row.kind == "status":
        return f"{row.channel}/status"
    try:
        return f"{row.channel}:{InboundAction.model_validate_json(row.body).identity}"
    except ValidationError:
        return row.key


class ReportHandler:
    """Stores vendors' reports on cards, and expedites a person's next channel after a failed card."""

    def __init__(self, deliveries: DeliveryQueue, record: Record, clock: Clock) -> None:
        self._deliveries = deliveries
        self._record = record
        self._clock = clock

    async def handle(self, channel: Channel, status: DeliveryStatus, attempts: int) -> dict[str, Any] | None:
        card = await self._deliveries.state(channel.name, status.vendor_id, status.state, status.code, status.message)
        if card is None:
            # A report may overtake the vendor's response to our sending of the card. These attempts take 15 seconds.
            return None if attempts < _UNKNOWN_CARD_TRIES else {"what": status.state, "token": ""}
        if status.state == "failed":
            await self._handle_failure(channel, status)
        return {"what": status.state, "token": card.token, "state": card.state}

    async def _handle_failure(self, channel: Channel, status: DeliveryStatus) -> None:
        """The vendor accepted a card but could not deliver it."""
        # A list is one message for several cards. A card that was read or closed has not failed.
        for card in await self._deliveries.by_vendor(channel.name, [status.vendor_id]):
            if card.state == "failed" and card.ended_at is None:
                await next_channel(self._deliveries, card)
                facts = {"person": card.person, "channel": card.channel, "code": card.code, "message": card.message}
                await self._record([delivery_entry(card.request, "failed", card.token, self._clock(), facts)])


async def send_reply(channel: Channel, where: Mapping[str, Any], reply: ChannelReply, until: float) -> SentCard | None:
    """Try until `until` by the loop's clock. Returns `None` if the reply was not sent."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(min(until, loop.time() + TOTAL_SECONDS)):
            return await _try(channel, where, reply)
    except TimeoutError:
        _log.warning("an answer on `%s` did not get out in time", channel.name)
        return None


async def _try(channel: Channel, where: Mapping[str, Any], reply: ChannelReply) -> SentCard | None:
    for pause in (*REPLY_PAUSES, None):
        try:
            return await channel.answer(where, reply) or SentCard()
        except NotDelivered as error:
            _log.warning("an answer on `%s` did not get out: %s", channel.name, error.message)
            # A longer pause would only end in our own timeout.
            if not error.again or pause is None or error.after > TOTAL_SECONDS:
                return None
            await asyncio.sleep(max(pause, error.after))
        except Exception as error:
            # Channel adapters are third-party code. A failed reply does not undo the decision.
            _log.warning("an answer on `%s` did not get out: %s", channel.name, type(error).__name__)
            return None
    return None
