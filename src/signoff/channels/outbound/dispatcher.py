"""The dispatcher: reads from the store what happens to requests, plans who is told on which channel, has it carried.

Any number of dispatchers share one store. What one of them has claimed when it is killed, another takes up a minute
later; a card that it may have sent already is sent again under the same token, and all copies are closed in the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import partial
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from signoff.approvals.notifications import RequestEvent
from signoff.channels.base import Channel
from signoff.channels.outbound.sender import ChannelSender, SenderDeps
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import ContactPreferences, Person
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.store.delivery_queue import NewDelivery
from signoff.telemetry.json_log import bind_log_fields, fields_of_request
from signoff.telemetry.stack_trace import trace_without_words

_SPARE: Final = timedelta(minutes=1)
"""What somebody needs at least to answer: a rest that ends later than this before the deadline is not waited for."""

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


class PlannedCard(NamedTuple):
    """One card to come."""

    person: Person
    """For whom."""
    channel: str
    """On which channel."""
    address: str
    """At which address."""
    rank: int
    """Its place among the person's channels."""
    due_at: datetime
    """From when on, in UTC."""


@dataclass(frozen=True)
class RoutePlan:
    """The cards of a request."""

    cards: tuple[PlannedCard, ...]
    """What is to be sent, in order."""
    unreached: tuple[Person, ...]
    """People whom no channel reaches: they find the request in the inbox only."""


def find_asked(request: ApprovalRequest, people: Directory, now: datetime) -> tuple[Person, ...]:
    """Returns everybody who may answer `request` now, for themselves or for somebody else, in order of the
    directory.
    """
    spec = approver_spec_of(request)
    return tuple(
        person for person in people.all(request.tenant) if not resolve_eligibility(person, people, spec, now).code
    )


def plan(
    request: ApprovalRequest,
    people: Iterable[Person],
    identities: Mapping[str, str],
    rules: RoutingRules,
    now: datetime,
) -> RoutePlan:
    """Plans how `people` are told of `request`. `identities` gives for each channel the kind of identity it reaches.

    The first channel at once, or when the person's rest ends; each next one only if the one before was not read within
    `rules.fallback_after`. With `rules.all` they are told on all of them at once.
    """
    cards: list[PlannedCard] = []
    unreached: list[Person] = []
    for person in people:
        found = [
            (name, person.identities[identities[name]][0])
            for name in _in_order(request.notify, person.reach)
            if name in identities and person.identities.get(identities[name])
        ]
        if not found:
            unreached.append(person)
            continue
        begins = due(person.reach, now, request.expires_at)
        for rank, (name, address) in enumerate(found):
            at = begins if rules.all else begins + rank * timedelta(seconds=rules.fallback_after)
            cards.append(PlannedCard(person, name, address, rank, at))
    return RoutePlan(tuple(cards), tuple(unreached))


def due(reach: ContactPreferences | None, now: datetime, deadline: datetime | None) -> datetime:
    """Returns when somebody may be told: now, or as their quiet hours end, unless that would be too late to answer."""
    if reach is None:
        return now
    ends = rest_ends(reach, now)
    if ends is None or (deadline is not None and ends + _SPARE > deadline):
        return now
    return ends


def rest_ends(reach: ContactPreferences, now: datetime) -> datetime | None:
    """Returns the end of the quiet hours that `now` (UTC) falls in, in UTC; None outside of them.

    A rest is from `quiet_from` to `quiet_to` on the wall clock of the person's zone, over midnight where the second is
    the earlier one. The whole of each of `quiet_days` is one too. Rests that touch are one.
    """
    zone = ZoneInfo(reach.timezone)
    moment = now
    # Each round leaves one rest; a week of nothing but rest is no rest at all, or nobody were ever told.
    for _ in range(2 * _WEEK):
        ends = _rest_at(reach, moment.astimezone(zone))
        if ends is None:
            return None if moment == now else moment
        moment = ends.astimezone(now.tzinfo)
    return None


_WEEK: Final = 7
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def _rest_at(reach: ContactPreferences, local: datetime) -> datetime | None:
    if _DAYS[local.weekday()] in reach.quiet_days:
        return _at(local, time(0), 1)
    if not reach.quiet_from or not reach.quiet_to:
        return None
    begins, ends = time.fromisoformat(reach.quiet_from), time.fromisoformat(reach.quiet_to)
    clock = local.time()
    # Two equal times are no rest at all, and not one from day to day that never ends.
    if begins <= ends:
        return _at(local, ends, 0) if begins <= clock < ends else None
    if clock >= begins:
        return _at(local, ends, 1)
    return _at(local, ends, 0) if clock < ends else None


def _at(local: datetime, clock: time, days: int) -> datetime:
    """Returns a time on the wall clock of that zone: on the night when clocks change, it is the clock that counts."""
    return datetime.combine(local.date() + timedelta(days=days), clock, tzinfo=local.tzinfo)


def _in_order(notify: Sequence[str], reach: ContactPreferences | None) -> tuple[str, ...]:
    """Returns the channels of a request, in the order of the person where they have one; only those of both."""
    if reach is None or not reach.channels:
        return tuple(dict.fromkeys(notify))
    return tuple(name for name in dict.fromkeys(reach.channels) if name in notify)
