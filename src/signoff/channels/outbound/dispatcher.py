"""The dispatcher: reads from the store what happens to requests, plans who is told on which channel, has it carried.

Any number of dispatchers share one store. What one of them has claimed when it is killed, another takes up a minute
later; a card that it may have sent already is sent again under the same token, and all copies are closed in the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

from signoff.approvals.notifications import RequestEvent
from signoff.channels.base import Channel
from signoff.channels.outbound.route_plan import find_asked, plan
from signoff.channels.outbound.sender import ChannelSender, SenderDeps
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import Unavailable
from signoff.formats.stack_trace import trace_without_words
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.delivery_queue import NewDelivery
from signoff.telemetry.json_log import bind_log_fields, fields_of_request

TICK: Final = 0.5
"""Seconds between two looks at a queue that was empty."""
_LONGEST_PAUSE: Final = 60.0
ASIDE: Final = timedelta(minutes=1)
"""How long something waits that cannot be told, so that it holds up nothing else."""
_log = logging.getLogger(__name__)


class EventSource(Protocol):
    """Reports what happens to requests: `RequestEvents`, or a test's."""

    async def poll(self) -> Sequence[RequestEvent]:
        """Returns the events since the last look."""
        ...

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """Returns `request` as it ended, if it is over; else None."""
        ...


class Dispatcher:
    """Carries out what `events` tell; `channels` are those that opened, by their names."""

    def __init__(
        self, events: EventSource, channels: Mapping[str, Channel], rules: RoutingRules, deps: SenderDeps
    ) -> None:
        self._events = events
        self._left: list[RequestEvent] = []
        self._aside: list[tuple[datetime, RequestEvent]] = []
        self._rules = rules
        self._deps = deps
        self._identities = {name: channel.identity for name, channel in channels.items()}
        self._senders = {name: ChannelSender(channel, deps) for name, channel in channels.items()}
        self._paces = {name: channel.per_second for name, channel in channels.items()}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Looks at the queues now: something happened in this process."""
        self._woken.set()

    async def run(self) -> None:
        """Sends cards until cancelled. What fails for want of the store is tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.read))
            for name, sender in self._senders.items():
                group.create_task(self._again_and_again(partial(sender.send, 1.0 / self._paces[name])))
                # Apart: nobody should find buttons on an old card for as long as new ones take.
                group.create_task(self._again_and_again(sender.close))

    async def step(self) -> int:
        """Runs one round of everything, for those who drive it themselves; returns how much there was to do.

        Raises `StoreUnavailable`.
        """
        read = await self.read()
        sent = await asyncio.gather(*(sender.step() for sender in self._senders.values()))
        return read + sum(sent)

    async def read(self) -> int:
        """Takes in what has happened; how many things it was. Raises `StoreUnavailable`."""
        now = self._deps.clock()
        self._left += [event for due, event in self._aside if due <= now]
        self._aside = [each for each in self._aside if each[0] > now]
        self._left += await self._events.poll()
        done = 0
        while self._left:
            try:
                await self._take(self._left[0])
            # The store is away for all of them: what is left is taken up with the next look.
            except Unavailable:
                raise
            # One that cannot be taken must not keep back those behind it.
            except Exception as error:
                named = self._left[0].request.id
                _log.error("what happened to %s cannot be told now: %s", named, trace_without_words(error))
                self._aside.append((now + ASIDE, self._left[0]))
            self._left.pop(0)
            done += 1
        return done

    async def _take(self, event: RequestEvent) -> None:
        with bind_log_fields(fields_of_request(event.request.id)):
            await self._apply(event)

    async def _apply(self, event: RequestEvent) -> None:
        request, cards = event.request, self._deps.deliveries
        if event.kind == "closed":
            await cards.end(request.id, request.revision, request)
            return
        # For every event: who is asked now may be more than at first, and cards that are there stay as they are.
        await self._plan(request)
        if event.kind == "reminded":
            await cards.remind(request)
        elif event.kind == "escalated":
            await cards.renew(request)
        # After the cards are planned: another dispatcher may have ended those it found, and these would stay open.
        over = await self._events.ending(request)
        if over is not None:
            await cards.end(request.id, request.revision, over)

    async def _plan(self, request: ApprovalRequest) -> int:
        deps, now = self._deps, self._deps.clock()
        people = find_asked(request, deps.people, now)
        found = plan(request, people, self._identities, self._rules, now)
        if found.unreached:
            names = ", ".join(person.id for person in found.unreached)
            _log.warning("no channel of %s reaches %s; they find it in the inbox", request.id, names)
        return await deps.deliveries.plan(
            [
                NewDelivery(
                    request=request,
                    person=each.person.id,
                    channel=each.channel,
                    address=each.address,
                    # What is due at once is so by the store's clock, which need not be ours.
                    due_at=each.due_at if each.due_at > now else None,
                )
                for each in found.cards
            ]
        )

    async def _again_and_again(self, work: Callable[[], Awaitable[int]]) -> None:
        pause = TICK
        while True:
            try:
                done = await work()
                pause = TICK
            except Unavailable as error:
                _log.warning("the dispatcher waits: %s", error.message)
                done, pause = 0, min(2 * pause, _LONGEST_PAUSE)
            if done:
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)
            # All of these tasks share it, so a wake may be lost here; that costs no more than one pause.
            self._woken.clear()
