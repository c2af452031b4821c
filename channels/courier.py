"""The courier: reads what turns tell of their requests, plans who is told on which channel, and has it carried.

Any number of couriers share one store. What one of them has claimed when it is killed, another takes up a minute
later; a card that it may have sent already is sent again under the same token, and all copies are closed in the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from signoff.channels.base import Channel
from signoff.channels.carrying import Carrier, Supplies
from signoff.channels.routing import asked, plan
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import Unavailable
from signoff.registry.manifest_channels import RoutingRules
from signoff.store.deliveries import NewDelivery
from signoff.store.notices import NoticeRow, Notices, notice_key

TICK: Final = 0.5
"""Seconds between two looks at a queue that was empty."""
_AT_ONCE: Final = 50
_LONGEST_PAUSE: Final = 60.0
_ASIDE: Final = 60.0
"""Seconds until a notice is taken up again that could not be taken."""
_log = logging.getLogger(__name__)


class Courier:
    """Carries notices out. `notices` is the queue; `channels` are those that opened, by their names."""

    def __init__(
        self, notices: Notices, channels: Mapping[str, Channel], rules: RoutingRules, supplies: Supplies
    ) -> None:
        self._notices = notices
        self._rules = rules
        self._supplies = supplies
        self._identities = {name: channel.identity for name, channel in channels.items()}
        self._carriers = {name: Carrier(channel, supplies) for name, channel in channels.items()}
        self._paces = {name: channel.per_second for name, channel in channels.items()}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at the queues now: something happened in this process."""
        self._woken.set()

    async def run(self) -> None:
        """Carry until cancelled. What fails for want of the store is tried again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.read))
            for name, carrier in self._carriers.items():
                group.create_task(self._again_and_again(partial(carrier.send, 1.0 / self._paces[name])))
                # Apart: nobody should find buttons on an old card for as long as new ones take.
                group.create_task(self._again_and_again(carrier.close))

    async def step(self) -> int:
        """One round of everything, for those who drive it themselves; how much there was to do.

        Raises `StoreUnavailable`.
        """
        read = await self.read()
        carried = await asyncio.gather(*(carrier.step() for carrier in self._carriers.values()))
        return read + sum(carried)

    async def read(self) -> int:
        """Take in what turns have told; how many notices it was. Raises `StoreUnavailable`."""
        rows = await self._notices.claim(_AT_ONCE)
        for row in rows:
            try:
                await self._take(row)
            # The store is away for all of them. The claims run out by themselves, and nothing is put off for it.
            except Unavailable:
                raise
            # One notice that cannot be taken must not keep back those behind it.
            except Exception:
                _log.exception("the notice %s cannot be taken now", row.key)
                await self._notices.later(row.key, _ASIDE)
                continue
            # Last: killed before, it is taken once more, and cards that are planned or ended twice are so once.
            await self._notices.done(row.key)
        return len(rows)

    async def sweep(self, waiting: Sequence[ApprovalRequest]) -> int:
        """Make good what was never told: `waiting` are requests that wait, all of them; how many were amiss.

        Cards whose request does not wait any more are left to who knows how it ended. Raises `StoreUnavailable`.
        """
        amiss = 0
        for request in waiting:
            if request.notify and not await self._supplies.deliveries.of_request(request.id, request.revision):
                await self._notices.put(notice_key(request, "opened"), request.tenant, "opened", request)
                amiss += await self._plan(request)
        return amiss

    async def _take(self, row: NoticeRow) -> None:
        request = row.request
        cards = self._supplies.deliveries
        if row.event == "closed":
            await cards.end(request.id, request.revision, request)
            return
        # For every event: who is asked now may be more than at first, and cards that are there stay as they are.
        await self._plan(request)
        if row.event == "reminded":
            await cards.remind(request)
        elif row.event == "escalated":
            await cards.renew(request)
        # Notices of one request may be read in any order: what is over stays so.
        # After the cards are planned: an end that is read in between would miss them, and they would stay open.
        over = await self._notices.look(notice_key(request, "closed"))
        if over is not None:
            await cards.end(request.id, request.revision, over.request)

    async def _plan(self, request: ApprovalRequest) -> int:
        supplies, now = self._supplies, self._supplies.clock()
        people = asked(request, supplies.people, now)
        found = plan(request, people, self._identities, self._rules, now)
        if found.unreached:
            names = ", ".join(person.id for person in found.unreached)
            _log.warning("no channel of %s reaches %s; they find it in the inbox", request.id, names)
        return await supplies.deliveries.plan(
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
                _log.warning("the courier waits: %s", error.message)
                done, pause = 0, min(2 * pause, _LONGEST_PAUSE)
            if done:
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)
            # All of these tasks share it, so a wake may be lost here; that costs no more than one pause.
            self._woken.clear()
