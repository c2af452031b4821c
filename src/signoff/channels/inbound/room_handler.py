"""Handles the buttons of cards in rooms: a person takes a request, gives it back, or sees it. None of them decides."""

from datetime import timedelta
from typing import Final, Protocol

from signoff.channels.base import Channel
from signoff.channels.envelopes import PARTIAL, ChannelReply, InboundAction, OutboundCard
from signoff.channels.inbound.outcome import Outcome, UnknownSenders, in_words
from signoff.channels.inbound.target import CodeLookup
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import Clock
from signoff.contracts.person import Person
from signoff.decisions.request_taker import RequestTaker
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH, text
from signoff.people.directory import Directory
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow, NewDelivery
from signoff.store.store import Store
from signoff.texts.formatter import Formatter, formatter_for

_NOT_SENT: Final = timedelta(days=400)
"""A card that is only viewed in its room is due this long after its request."""


class RoomRequests(CodeLookup, Protocol):
    """Finds requests, and their pages."""

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str: ...

    def may_ask(self, request: ApprovalRequest) -> bool: ...


class RoomHandler:
    """Judges each person as for a decision. The refusal is the same for all others, known or not."""

    def __init__(self, store: Store, directory: Directory, requests: RoomRequests, clock: Clock) -> None:
        self._deliveries = DeliveryQueue(store)
        self._taker = RequestTaker(store, directory, clock)
        self._directory = directory
        self._requests = requests
        self._clock = clock

    async def handle(self, channel: Channel, action: InboundAction, strangers: UnknownSenders) -> Outcome:
        """Raises `Unavailable`."""
        row = await self._deliveries.by_token(action.token) if action.token else None
        if row is None or row.kind != "room" or row.channel != channel.name:
            known = self._is_known(channel, action)
            met = "seen" if known else await strangers.count_sender(action.identity)
            return _refuse(action, forgotten=met == "many")
        person = self._directory.by_identity(channel.identity, action.identity, row.tenant)
        if person is None or not person.active:
            met = await strangers.count_sender(action.identity)
            return _refuse(action, forgotten=met == "many")
        request = await self._find(row, person)
        if request is None:
            return _refuse(action)
        formatter = formatter_for(person, self._clock())
        if request.state != "pending" or request.revision != row.revision:
            return _reply(action, person, formatter, formatter.text("room.over"))
        if action.room == "show":
            return await self._show(channel, action, person, request)
        change = self._take if action.room == "take" else self._release
        return _reply(action, person, formatter, await change(channel, person, request, formatter))

    def _is_known(self, channel: Channel, action: InboundAction) -> bool:
        """Return whether an active person of any tenant has the identity."""
        tenants = dict.fromkeys(person.tenant for person in self._directory.all())
        people = (self._directory.by_identity(channel.identity, action.identity, tenant) for tenant in tenants)
        return any(person is not None and person.active for person in people)

    async def _find(self, row: DeliveryRow, person: Person) -> ApprovalRequest | None:
        """Return the present request, or `None` if the person may not decide it."""
        found = await self._requests.with_code(person, row.request.code)
        request = next((each for each in found if each.id == row.approval), None)
        return request if request is not None and self._taker.may_take(request, person) else None

    async def _take(self, channel: Channel, person: Person, request: ApprovalRequest, formatter: Formatter) -> str:
        holder = await self._taker.take(request, person, channel.name)
        when = formatter.time(holder.lapses_at)
        if holder.person == person.id:
            return formatter.text("room.took", when=when)
        other = self._directory.find(holder.person, request.tenant)
        who = holder.person if other is None else other.name or other.id
        return formatter.text("room.held", who=who, when=when)

    async def _release(self, channel: Channel, person: Person, request: ApprovalRequest, formatter: Formatter) -> str:
        released = await self._taker.release(request, person, channel.name)
        return formatter.text("room.released" if released else "room.not_taken")

    async def _show(self, channel: Channel, action: InboundAction, person: Person, request: ApprovalRequest) -> Outcome:
        formatter = formatter_for(person, self._clock())
        link = await self._requests.link(request, person, channel.kind)
        mine = await self._own_card(channel, action, person, request)
        # The agent may just have answered. An approval by this card names the messages that its row shows.
        request = replace(request, messages=mine.request.messages, thread=mine.request.thread)
        opened = formatter.text("card.open", link=link)
        if channel.views:
            card = OutboundCard(
                token=mine.token,
                request=request,
                person=person,
                address=mine.address,
                link=link,
                asks=self._requests.may_ask(request),
            )
            if not (request.card.whole and channel.draws_whole(card)):
                await self._deliveries.add_to_handle(mine.token, PARTIAL, (action.key,))
            reply = ChannelReply(text=opened, language=formatter.language, card=card)
            return Outcome(_result(action, person), reply, action.where, person=person)
        await self._deliveries.expedite(mine.token)
        sends = mine.state in ("planned", "sent", "delivered", "read")
        voted = any(vote.subject == person.id for vote in request.votes)
        words = f"{formatter.text('room.sent')} {opened}" if sends and not voted else opened
        return _reply(action, person, formatter, words)

    async def _own_card(
        self, channel: Channel, action: InboundAction, person: Person, request: ApprovalRequest
    ) -> DeliveryRow:
        """Plan the person's card on this channel unless it exists. A list is no card."""
        later = (request.expires_at or self._clock()) + _NOT_SENT
        new = NewDelivery(
            request=request,
            person=person.id,
            channel=channel.name,
            address=action.identity,
            due_at=later if channel.views else None,
        )
        await self._deliveries.plan([new])
        await self._deliveries.take_off_list(new)
        rows = await self._deliveries.of_request(request.id, request.revision)
        return next(row for row in rows if (row.person, row.channel) == (person.id, channel.name))


def _refuse(action: InboundAction, *, forgotten: bool = False) -> Outcome:
    # In one language, and for all: a translated text would reveal that the directory knows the person.
    reply = ChannelReply(text=text("room.refused", ENGLISH), language=ENGLISH)
    return Outcome(
        {"what": "room", "act": action.room, "refused": True}, reply, in_words(action.where), forgotten=forgotten
    )


def _reply(action: InboundAction, person: Person, formatter: Formatter, words: str) -> Outcome:
    reply = ChannelReply(text=words, language=formatter.language)
    return Outcome(_result(action, person), reply, in_words(action.where), person=person)


def _result(action: InboundAction, person: Person) -> dict[str, object]:
    return {"what": "room", "act": action.room, "person": person.id}
