"""Reads events of requests from the store, plans each approver's cards, and has them sent.

Any number of dispatchers may share one store. If one is killed, another takes over its claims a minute later. It sends
a card that may already be out again under the same token. All copies are closed in the end.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from signoff.approvals.notifications import RequestEvent
from signoff.channels.base import Channel
from signoff.channels.outbound.sender import ChannelSender, SenderDeps
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import Unavailable
from signoff.contracts.person import ContactPreferences, Person
from signoff.people.absences import find_returns
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.people.on_call import asks_rota, find_on_call
from signoff.registry.manifest.channel_sections import RoutingRules
from signoff.registry.manifest.room_sections import find_rooms
from signoff.store.delivery_queue import NewDelivery, room_person
from signoff.telemetry.json_log import bind_log_fields, fields_of_request
from signoff.telemetry.stack_trace import trace_without_words

_SPARE: Final = timedelta(minutes=1)
"""The least time to answer. Quiet hours that end closer to the deadline are ignored."""

TICK: Final = 0.5
"""Seconds between two looks at an empty queue."""
_LONGEST_PAUSE: Final = 60.0
ASIDE: Final = timedelta(minutes=1)
"""How long a failed event waits, so that it does not hold up the others."""
_log = logging.getLogger(__name__)


class EventSource(Protocol):
    """Reports the events of requests."""

    async def poll(self) -> Sequence[RequestEvent]:
        """Return the events since the last look."""
        ...

    async def ending(self, request: ApprovalRequest) -> ApprovalRequest | None:
        """Return `request` in its end state, None if it has not ended."""
        ...


class NoticeSource(Protocol):
    """Plans notices."""

    async def step(self) -> int:
        """Plan the notices of events since the last step. Returns their number. Raises `StoreUnavailable`."""
        ...


class Dispatcher:
    """Sends the cards for `events`, and the notices that `notices` plans."""

    def __init__(
        self,
        events: EventSource,
        channels: Mapping[str, Channel],
        rules: RoutingRules,
        deps: SenderDeps,
        notices: NoticeSource | None = None,
    ) -> None:
        self._events = events
        self._notices = notices
        self._left: list[RequestEvent] = []
        self._aside: list[tuple[datetime, RequestEvent]] = []
        self._unasked: dict[str, tuple[datetime, RequestEvent]] = {}
        self._rules = rules
        self._deps = deps
        self._channels = channels
        self._senders = {name: ChannelSender(channel, deps) for name, channel in channels.items()}
        self._with_rooms = frozenset(name for name, channel in channels.items() if channel.rooms)
        named = {room.channel for rooms in deps.rooms.values() for room in rooms}
        for name in sorted(named & channels.keys() - self._with_rooms):
            _log.warning("channel `%s` has no rooms, so `rooms` of the manifest cannot use it", name)
        self._paces = {name: channel.per_second for name, channel in channels.items()}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look at the queues now: this process has changed a request."""
        self._woken.set()

    async def run(self) -> None:
        """Send cards until cancelled. Retries if the store is unavailable."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(self.read))
            if self._notices is not None:
                group.create_task(self._again_and_again(self._notices.step))
            for name, sender in self._senders.items():
                group.create_task(self._again_and_again(partial(sender.send, 1.0 / self._paces[name])))
                # A separate task, so that many cards do not delay notices.
                group.create_task(self._again_and_again(partial(sender.notices.send, 1.0 / self._paces[name])))
                # Close in a separate task, so that ended cards do not keep their buttons while new cards are sent.
                group.create_task(self._again_and_again(sender.close))

    async def step(self) -> int:
        """Run one round of all work, for callers that drive the dispatcher themselves.

        Returns the number of items. Raises `StoreUnavailable`.
        """
        read = await self.read()
        read += 0 if self._notices is None else await self._notices.step()
        sent = await asyncio.gather(*(sender.step() for sender in self._senders.values()))
        return read + sum(sent)

    async def read(self) -> int:
        """Handle the new events. Returns their number. Raises `StoreUnavailable`."""
        now = self._deps.clock()
        self._left += [event for due, event in self._aside if due <= now]
        self._aside = [each for each in self._aside if each[0] > now]
        for due, event in tuple(self._unasked.values()):
            if due <= now:
                self._left.append(event)
                self._unasked[event.request.id] = (now + ASIDE, event)
        self._left += await self._events.poll()
        done = 0
        while self._left:
            try:
                await self._take(self._left[0])
            # The store is unavailable for all events: the next look continues with the rest.
            except Unavailable:
                raise
            # A failed event must not hold up the events behind it.
            except Exception as error:
                named = self._left[0].request.id
                _log.error("the cards of %s cannot be updated now: %s", named, trace_without_words(error))
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
            self._unasked.pop(request.id, None)
            await cards.end(request.id, request.revision, request)
            return
        if request.messages:
            # For every event, as for hand-ons below, and before planning. The cards of people who voted stay.
            voters = {vote.subject for vote in request.votes}
            asked = find_asked(request, self._deps.people, self._deps.clock())
            await cards.replace_old(request, {person.id for person in asked} - voters)
        # Plan for every event: more people may be approvers now. Existing cards do not change.
        await self._plan(request)
        if request.assignments:
            # For every event: a dispatcher that has just started sees none for an earlier hand-on.
            await cards.assign(request)
        if event.kind == "reminded":
            await cards.remind(request)
        elif event.kind == "escalated" or request.asked_at is not None:
            await cards.renew(request)
        # Check the end after planning: another dispatcher may already have ended the cards that it saw, and the new
        # ones would stay open.
        over = await self._events.ending(request)
        self._note_rotas(event, over=over is not None)
        if over is not None:
            await cards.end(request.id, request.revision, over)

    def _note_rotas(self, event: RequestEvent, *, over: bool) -> None:
        # A request whose rotas name no person now is looked at again in a minute.
        request, now = event.request, self._deps.clock()
        known = self._unasked.pop(request.id, None)
        unnamed = () if over or not request.notify else _find_unnamed(request, self._deps.people, now)
        if not unnamed:
            return
        self._unasked[request.id] = (now + ASIDE, event)
        if known is None:
            named = ", ".join(f"`{each}`" for each in unnamed)
            _log.warning("%s asks no person of %s now; cards follow when one is on call", request.id, named)

    async def _plan(self, request: ApprovalRequest) -> int:
        deps, now = self._deps, self._deps.clock()
        people = find_asked(request, deps.people, now)
        absences = await deps.absences(request.tenant) if deps.absences is not None else ()
        returns = find_returns(request, people, absences, now)
        addresses = {
            name: await self._channels[name].addresses(people) for name in request.notify if name in self._channels
        }
        restless = _find_only_on_call(request, people, deps.people, now)
        route = plan(request, people, addresses, self._rules, now, returns, restless)
        if route.unreached and request.notify:
            names = ", ".join(person.id for person in route.unreached)
            _log.warning("no channel of %s reaches %s; they find it in the inbox", request.id, names)
        return await deps.deliveries.plan(
            [
                *self._room_cards(request),
                *(
                    NewDelivery(
                        request=request,
                        person=each.person.id,
                        channel=each.channel,
                        address=each.address,
                        # None means due now by the store's clock, which may differ from ours.
                        due_at=each.due_at if each.due_at > now else None,
                    )
                    for each in route.cards
                ),
            ]
        )

    def _room_cards(self, request: ApprovalRequest) -> list[NewDelivery]:
        """Return the cards of the rooms of its approvers' roles, one for each room."""
        rooms = find_rooms(self._deps.rooms, approver_spec_of(request).terms.approvers, request.tenant)
        return [
            NewDelivery(
                request=request,
                person=room_person(room.room),
                channel=room.channel,
                address=room.room,
                kind="room",
            )
            for room in rooms
            if room.channel in self._with_rooms
        ]

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
            # All tasks share this event, so a wake may get lost here. That costs at most one pause.
            self._woken.clear()


class PlannedCard(NamedTuple):
    """One planned card."""

    person: Person
    channel: str
    address: str
    rank: int
    """The channel's place in the person's order, from 0."""
    due_at: datetime
    """The earliest time to send it, in UTC."""


@dataclass(frozen=True)
class RoutePlan:
    """The cards of a request."""

    cards: tuple[PlannedCard, ...]
    unreached: tuple[Person, ...]
    """People without a channel: they see the request only in the inbox."""


def find_asked(request: ApprovalRequest, people: Directory, now: datetime) -> tuple[Person, ...]:
    """Return the people who may decide `request` now, for themselves or as delegates, in the directory's order."""
    spec = approver_spec_of(request)
    return tuple(
        person for person in people.all(request.tenant) if not resolve_eligibility(person, people, spec, now).code
    )


def _find_unnamed(request: ApprovalRequest, people: Directory, now: datetime) -> tuple[str, ...]:
    rotas = [each for each in approver_spec_of(request).terms.approvers if asks_rota((each,))]
    asked = find_asked(request, people, now) if rotas else ()
    named = {entry for each in asked for entry in find_on_call(people, each.id, request.tenant, now)}
    return tuple(each for each in rotas if each not in named)


def _find_only_on_call(
    request: ApprovalRequest, asked: Iterable[Person], people: Directory, now: datetime
) -> frozenset[str]:
    spec = approver_spec_of(request)
    if not asks_rota(spec.terms.approvers):
        return frozenset()
    return frozenset(each.id for each in asked if resolve_eligibility(each, people, spec, now, on_call=()).code)


def plan(
    request: ApprovalRequest,
    people: Iterable[Person],
    addresses: Mapping[str, Mapping[str, str]],
    rules: RoutingRules,
    now: datetime,
    returns: Mapping[str, datetime] = MappingProxyType({}),
    restless: Collection[str] = (),
) -> RoutePlan:
    """Plan the cards of `request`, without quiet hours for the ids `restless`.

    `returns` maps people who are away to their returns. Their cards are due then, or never if the request ends before.
    `addresses` maps each channel to the addresses of people on it. The first channel's card is due at once, or when the
    person's quiet hours end. Each next channel is due `rules.fallback_after` later, in case the person does not read
    the card before. With `rules.all`, all channels are due at the same time.
    """
    cards: list[PlannedCard] = []
    unreached: list[Person] = []
    for person in people:
        reachable = list_addresses(person, request.notify, addresses)
        if not reachable:
            unreached.append(person)
            continue
        back = returns.get(person.id, now)
        if back > now and request.expires_at is not None and back + _SPARE > request.expires_at:
            continue
        begins = back if person.id in restless else due(person.reach, back, request.expires_at)
        for rank, (name, address) in enumerate(reachable):
            at = begins if rules.all else begins + rank * timedelta(seconds=rules.fallback_after)
            cards.append(PlannedCard(person, name, address, rank, at))
    return RoutePlan(tuple(cards), tuple(unreached))


def list_addresses(
    person: Person, notify: Sequence[str], addresses: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """Return the channels of `notify` that reach a person, in the person's order, with the person's address on each."""
    return [
        (name, addresses[name][person.id])
        for name in _in_order(notify, person.reach)
        if person.id in addresses.get(name, ())
    ]


def due(reach: ContactPreferences | None, now: datetime, deadline: datetime | None) -> datetime:
    """Return when to notify a person: now, or at the end of the quiet hours unless that is too late to answer."""
    if reach is None:
        return now
    ends = rest_ends(reach, now)
    if ends is None or (deadline is not None and ends + _SPARE > deadline):
        return now
    return ends


def rest_ends(reach: ContactPreferences, now: datetime) -> datetime | None:
    """Return the end, in UTC, of the quiet hours that contain `now` (UTC), or `None`.

    Quiet hours last from `quiet_from` to `quiet_to` on the wall clock of the person's zone, over midnight if the second
    is earlier. Each of `quiet_days` is quiet as a whole. Adjacent quiet periods count as one.
    """
    zone = ZoneInfo(reach.timezone)
    moment = now
    # Each round skips one quiet period. Ignore a week that is entirely quiet: the person would never be notified.
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
    # Two equal times mean no quiet hours, rather than quiet hours without end.
    if begins <= ends:
        return _at(local, ends, 0) if begins <= clock < ends else None
    if clock >= begins:
        return _at(local, ends, 1)
    return _at(local, ends, 0) if clock < ends else None


def _at(local: datetime, clock: time, days: int) -> datetime:
    """Return a time on the wall clock of the zone of `local`, also in the night of a clock change."""
    return datetime.combine(local.date() + timedelta(days=days), clock, tzinfo=local.tzinfo)


def _in_order(notify: Sequence[str], reach: ContactPreferences | None) -> tuple[str, ...]:
    """A person with an order of channels has only those in both, in that order."""
    if reach is None or not reach.channels:
        return tuple(dict.fromkeys(notify))
    return tuple(name for name in dict.fromkeys(reach.channels) if name in notify)
