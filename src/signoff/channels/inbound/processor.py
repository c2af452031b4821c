"""Processes what came in by channels, and sends the replies; `answer_handler.py` decides what an answer means.

Answers are heard from the store, where the way in has kept them: whatever is down meanwhile, each is heard at last, and
decides once.
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
"""How long all tries of one reply take at most; far less than a claim, so that nobody else answers meanwhile."""
REPLY_PAUSES: Final = (0.5, 2.0)
"""How long after each failed try of a reply it is tried again."""

_UNKNOWN_CARD_TRIES: Final = 5

TICK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""On one channel, answers of so many people are decided at the same time; those of one person one after the other."""
CLAIMED: Final = 4 * AT_ONCE
"""So much of a channel is claimed before anything of it is done; no channel waits for what another one has claimed."""
LONGEST_WAIT: Final = 300.0
KEPT: Final = timedelta(days=400)
"""For how long it is known what came in: longer than any request is open, and than any vendor repeats itself."""
STRANGERS_KEPT: Final = timedelta(days=30)
MISREADINGS: Final = 10
"""How often something is tried that fails for no reason of the world's, before it is left."""
_SWEEP_EVERY: Final = timedelta(hours=1)
_BEFORE_THE_END: Final = 5.0
"""Seconds of a claim in which what came of an answer is written down, and nobody is told anything any more."""
_log = logging.getLogger(__name__)


class InboundProcessor:
    """Hears what came in by `channels`. Several processes over one store share the work."""

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
        """`hold` is for how many seconds an approval in words waits for later words of its author."""
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
        """Looks for what came in now."""
        self._woken.set()

    async def run(self) -> None:
        """Hears whatever comes in, until cancelled; what is under way then is anybody's again at once."""
        failures = 0
        try:
            while True:
                # Before looking: what comes in while we look wakes us again.
                self._woken.clear()
                try:
                    rows = await self._claim()
                    await self._sweep()
                    failures = 0
                except Unavailable as error:
                    failures += 1
                    _log.warning("what came in by channels cannot be looked at now: %s", error.message)
                    await asyncio.sleep(backoff(failures))
                    continue
                if not rows:
                    await self._rest()
        finally:
            await self._leave()

    async def step(self) -> int:
        """Hears what is due now; how much that was. Raises `StoreUnavailable`."""
        rows = await self._claim()
        while self._speakers:
            await asyncio.wait(self._speakers.values())
        return rows

    async def _claim(self) -> int:
        """Begins to hear what is due, as much as there is room for; returns how much that was."""
        queued = Counter(row.channel for queue in self._queues.values() for row, _ in queue)
        # What such a channel were given on top would lie here until its claim runs out, and each claim is a try.
        full = [name for name, rows in queued.items() if rows >= CLAIMED]
        # Read before the store is asked, so that by our clock a claim ends no later than by the store's.
        claimed = asyncio.get_running_loop().time()
        rows = await self._arrivals.claim(CLAIMED, full)
        for row in rows:
            speaker = _speaker(row)
            self._queues.setdefault(speaker, deque()).append((row, claimed))
            if speaker not in self._speakers:
                self._speakers[speaker] = asyncio.create_task(self._hear_all(speaker))
        return len(rows)

    async def _hear_all(self, speaker: str) -> None:
        """Hears what one person says, in their order; nobody waits for anybody else."""
        queue = self._queues[speaker]
        try:
            while queue:
                # It stays in the queue while it is heard: `_leave` gives back whatever is still there.
                await self._hear(*queue[0])
                queue.popleft()
            # Nothing is awaited since the queue was seen empty, so `_claim` cannot have put anything into it.
            del self._queues[speaker]
        finally:
            del self._speakers[speaker]

    async def _leave(self) -> None:
        # A copy, as each of them takes itself out when it ends.
        speaking = list(self._speakers.values())
        for task in speaking:
            task.cancel()
        await asyncio.gather(*speaking, return_exceptions=True)
        left = [row for queue in self._queues.values() for row, _ in queue]
        self._queues, self._speakers = {}, {}
        for row in left:
            await self._given_back(row)

    async def _given_back(self, row: InboundRow) -> None:
        """Lets a claimed arrival be anybody's, now."""
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
        """Hears one arrival; writes down what came of it, or when it is heard again. Raises only to be ended."""
        try:
            async with self._slots.setdefault(row.channel, asyncio.Semaphore(AT_ONCE)):
                if asyncio.get_running_loop().time() >= claimed + LEASE_SECONDS / 2:
                    # Before somebody else may take it: heard twice at once, it would be answered twice.
                    await self._given_back(row)
                    return
                made = await self._made_of(row)
            result = made.result
            if made.reply is not None:
                # Whoever is told something slowly takes nobody's slot.
                until = claimed + LEASE_SECONDS - _BEFORE_THE_END
                reply = replace(made.reply, id=made.reply_id(row.key))
                sent = await send_reply(self._channels[row.channel], made.where, reply, until)
                result = None if result is None else {**result, "answered": sent is not None}
                await self._note_reply(row.channel, made, sent)
                await note_sent_words(self._deliveries, made.where, made.reply)
            if made.forgotten:
                # Of a flood not even the key is kept, or the store would grow by whatever anybody sends.
                await self._arrivals.forget(row.key)
            elif made.hold:
                await self._arrivals.hold(row.key, made.hold)
            elif result is not None:
                await self._arrivals.finish(row.key, result, state=made.state)
            # The sweep passes over what is not settled: without an end here it would lie in the store for ever.
            elif self._clock() - row.received_at < KEPT:
                await self._arrivals.reschedule(row.key, backoff(row.attempts))
            else:
                await self._arrivals.finish(row.key, {"what": "given up"}, state="dropped")
        # The world's failures are not counted, or a long outage would lose answers; only our own are, below.
        except Unavailable as error:
            _log.info("%r is heard later: %s", row.key, error.message)
            await self._again(row)
        # Anything else is a fault for this one message. It may neither end its speaker's task nor be tried for ever.
        except Exception as error:
            _log.error("%r could not be heard: %s", row.key, trace_without_words(error))
            await self._again(row, type(error).__name__ if row.attempts >= MISREADINGS else "")

    async def _note_reply(self, channel: str, made: Outcome, sent: SentCard | None) -> None:
        """Note the id of a reply, by which an answer to it is known."""
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
            # It is claimed for a minute, and then anybody's again.
            _log.warning("the store does not take what is to become of %r", row.key)

    async def _made_of(self, row: InboundRow) -> Outcome:
        """Processes an arrival; its sender has yet to be answered."""
        channel = self._channels.get(row.channel)
        if channel is None:
            # It may be back after the next start; until then this is looked at ever more rarely.
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
    """Returns seconds until the next try: 1, 2, 4, ... up to 5 minutes."""
    return float(min(LONGEST_WAIT, 2 ** min(max(attempts, 1) - 1, 20)))


def _speaker(row: InboundRow) -> str:
    """Returns whose answers, or what cards' states, are to be heard in their order."""
    if row.kind == "status":
        return f"{row.channel}/status"
    try:
        return f"{row.channel}:{InboundAction.model_validate_json(row.body).identity}"
    except ValidationError:
        return row.key


class ReportHandler:
    """Records reports, and lets the next channel take over from a failed card."""

    def __init__(self, deliveries: DeliveryQueue, record: Record, clock: Clock) -> None:
        self._deliveries = deliveries
        self._record = record
        self._clock = clock

    async def handle(self, channel: Channel, status: DeliveryStatus, attempts: int) -> dict[str, Any] | None:
        card = await self._deliveries.state(channel.name, status.vendor_id, status.state, status.code, status.message)
        if card is None:
            # Vendors report a message before their answer to its sending is written down here; these tries take 15 s.
            return None if attempts < _UNKNOWN_CARD_TRIES else {"what": status.state, "token": ""}
        if status.state == "failed":
            await self._handle_failure(channel, status)
        return {"what": status.state, "token": card.token, "state": card.state}

    async def _handle_failure(self, channel: Channel, status: DeliveryStatus) -> None:
        """Handles a card that the vendor took and could not deliver: the person's next channel takes over, and the
        record says so.
        """
        # A list is one message for several cards. What was read, or is over, has not failed.
        for card in await self._deliveries.by_vendor(channel.name, [status.vendor_id]):
            if card.state == "failed" and card.ended_at is None:
                await next_channel(self._deliveries, card)
                facts = {"person": card.person, "channel": card.channel, "code": card.code, "message": card.message}
                await self._record([delivery_entry(card.request, "failed", card.token, self._clock(), facts)])


async def send_reply(channel: Channel, where: Mapping[str, Any], reply: ChannelReply, until: float) -> SentCard | None:
    """Sends `reply` until `until` of the loop's clock; returns the message, or None if it was not sent."""
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
            # A pause beyond our own end would only be cut off there.
            if not error.again or pause is None or error.after > TOTAL_SECONDS:
                return None
            await asyncio.sleep(max(pause, error.after))
        except Exception as error:
            # Adapters are anybody's code, and what was decided stands.
            _log.warning("an answer on `%s` did not get out: %s", channel.name, type(error).__name__)
            return None
    return None
