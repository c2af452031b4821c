"""One channel's part of the dispatcher: sends cards and reminders, and closes cards at the end.

Each channel has its own sender, so that none waits for another channel's vendor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, groupby
from typing import Final, Literal

from signoff.approvals.audit_events import delivery_entry
from signoff.channels.asked_revision import revision_shown, subject_of
from signoff.channels.base import Channel
from signoff.channels.channel_errors import NotDelivered
from signoff.channels.envelopes import PARTIAL, SENT, SHOWN, ClosedCard, OutboundCard, SentCard
from signoff.channels.outbound.joined_calls import JoinedCalls
from signoff.channels.outbound.notice_sender import NoticeSender
from signoff.channels.room_text import room_card
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.clock import Clock
from signoff.contracts.person import Absence, Person
from signoff.keys.secrets import SecretProvider
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.people.on_call import has_unread
from signoff.registry.manifest.room_sections import TeamRoom, TeamRooms
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow, SentDelivery
from signoff.store.messages.notices import Notices
from signoff.store.messages.own_messages import OwnMessage, OwnMessages
from signoff.store.questions.taken_requests import TakenRequests
from signoff.telemetry.json_log import bind_log_fields, fields_of_request
from signoff.telemetry.stack_trace import trace_without_words
from signoff.texts.formatter import Formatter

SEND_SECONDS: Final = 30.0
"""The limit for sending one card. A claim lasts twice as long."""
LONGEST_PAUSE: Final = 600.0
CLOSE_WITHIN: Final = timedelta(hours=24)
"""How long closing a card is retried. After that, only the card's link shows the end."""
_AT_ONCE: Final = 20
"""The least number of cards that are claimed together, and the most that one digest is made from."""
_MOST_AT_ONCE: Final = 200
_CLAIMED_SECONDS: Final = 5.0
"""Cards are claimed for so many seconds at the vendor's pace, so that all are sent before the claim ends."""
_UNDER_WAY: Final = 32
"""Messages that one channel sends at the same time, so that a slow one delays no other.

A channel of a vendor with a high pace sends half of its claim: more cards then share each transaction.
"""
_UNREAD_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


def _is_asked_elsewhere(request: ApprovalRequest) -> bool:
    return False


def _reads_nothing(person: Person, request: ApprovalRequest) -> bool:
    return False


@dataclass(frozen=True)
class SenderDeps:
    """`links` returns the address of a card's link; `record` appends to the audit log.

    More than `digest_over` new cards for one person become one message. `secrets` redacts the secrets in vendors'
    responses.
    """

    deliveries: DeliveryQueue
    own_messages: OwnMessages
    people: Directory
    links: Callable[[DeliveryRow], Awaitable[str]]
    record: Callable[[Sequence[AuditEntry]], Awaitable[object]]
    clock: Clock
    digest_over: int
    secrets: SecretProvider = field(default_factory=SecretProvider, repr=False)
    notices: Notices | None = None
    """The queue of notices. Without it, none is sent."""
    may_read: Callable[[Person, ApprovalRequest], bool] = field(default=_reads_nothing, repr=False)
    """Returns whether a person may read a request."""
    absences: Callable[[str], Awaitable[Sequence[Absence]]] | None = field(default=None, repr=False)
    """Finds the absences of a tenant. Without it, all people are present."""
    rooms: TeamRooms = field(default_factory=dict)
    """The rooms of teams, by approver entry."""
    may_ask: Callable[[ApprovalRequest], bool] = field(default=_is_asked_elsewhere, repr=False)
    """Returns whether approvers can ask the agent about a request."""
    taken: TakenRequests | None = field(default=None, repr=False)
    """The requests that people have taken in rooms."""


class ChannelSender:
    """Sends the cards of one channel. No two calls of one method run at the same time."""

    def __init__(self, channel: Channel, deps: SenderDeps) -> None:
        self._channel = channel
        self._deps = deps
        self._cards = deps.deliveries
        self._not_before = deps.clock()
        self._turn = 0.0
        # Many messages are under way: their writes share transactions.
        self._tries = JoinedCalls(self._cards.record_try)
        self._sent = JoinedCalls(self._cards.record_all_sent)
        self._entries = JoinedCalls(deps.record)
        self.notices = NoticeSender(channel, deps, self)

    @property
    def name(self) -> str:
        return self._channel.name

    @property
    def rests(self) -> bool:
        """Return whether the vendor wants a pause."""
        return self._deps.clock() < self._not_before

    async def step(self, pace: float = 0.0) -> int:
        """Close ended cards, then send due cards and notices, `pace` seconds apart.

        Returns the number of messages. Raises `StoreUnavailable`.
        """
        return await self.close() + await self.send(pace) + await self.notices.send(pace)

    async def send(self, pace: float = 0.0) -> int:
        """Send due cards, `pace` seconds apart. Returns the number of messages. Raises `StoreUnavailable`."""
        # Do not claim during a pause: each claim counts as an attempt, and the pauses grow with the attempts.
        if self.rests:
            return 0
        loop = asyncio.get_running_loop()
        # A card that starts by then may take as long again, and is still sent before its claim ends.
        late = loop.time() + SEND_SECONDS
        most = _cards_at_once(pace)
        rows = await self._cards.claim_due(most, self.name)
        wanted = await self._select_wanted(rows)
        # A larger claim makes no larger lists: an answer to a list is ambiguous more often than one to a card.
        groups = (wanted[first : first + _AT_ONCE] for first in range(0, len(wanted), _AT_ONCE))
        messages, done = chain.from_iterable(map(self._messages, groups)), 0

        async def work() -> None:
            nonlocal done
            for message in messages:
                await self.wait_for_turn(pace)
                with bind_log_fields(fields_of_request(message[0].approval)):
                    sent = await self._send(message, late)
                done += sent

        # An error must not cancel the others: their messages may be out, and are recorded now.
        workers = min(len(rows), max(_UNDER_WAY, most // 2))
        ended = await asyncio.gather(*(work() for _ in range(workers)), return_exceptions=True)
        for error in filter(None, ended):
            raise error
        return done

    async def _send(self, message: Sequence[DeliveryRow], late: float) -> int:
        def is_late() -> bool:
            return asyncio.get_running_loop().time() > late or self._deps.clock() < self._not_before

        if is_late():
            return await self._release(message)
        begun = await self._begin(message)
        if is_late():
            return await self._release(begun)
        if not begun:
            return 0
        return await (self._one(begun[0]) if len(message) == 1 else self._digest(begun))

    async def _release(self, rows: Sequence[DeliveryRow]) -> int:
        # Before another process may claim them: both would send the cards.
        for row in rows:
            await self._cards.record_failure(row.token, row.code, row.message, again_after=0.0)
        return 0

    async def wait_for_turn(self, pace: float) -> None:
        """Wait until the channel may send its next message."""
        now = asyncio.get_running_loop().time()
        begins = max(now, self._turn)
        self._turn = begins + pace
        if begins > now:
            await asyncio.sleep(begins - now)

    def _messages(self, rows: Sequence[DeliveryRow]) -> Iterator[list[DeliveryRow]]:
        for _, same in groupby(sorted(rows, key=_to_whom), key=_to_whom):
            group = list(same)
            asks = [row for row in group if row.kind == "ask" and row.state == "planned"]
            if len(asks) > self._deps.digest_over:
                yield asks
                group = [row for row in group if row not in asks]
            yield from ([row] for row in group)

    async def _one(self, row: DeliveryRow) -> int:
        if row.kind == "room":
            return await self._draw_room(row)
        again = row.state != "planned"
        before = SentCard(vendor_id=row.vendor_id, handle=row.handle) if again else None
        card = await self._outbound_card(row, "remind" if again else "ask")
        # Send before recording: after a crash, the card is sent twice under one token, rather than never.
        sent = await self._try_to_send([row], lambda: self._channel.deliver(card, before))
        if sent is None:
            return 0
        if again:
            await self._cards.record_reminder(row.token)
            whole = self._channel.draws_whole(card)
            await self._note_message(row, sent, whole=whole)
            if row.kind == "digest" and whole:
                await self._cards.add_to_handle(row.token, SHOWN, ("remind",))
            await self._cards.add_to_handle(row.token, SENT, sent.handle.get(SENT, ()))
            await self._record(row, "reminded", vendor_id=sent.vendor_id, attempt=row.request.reminded)
        else:
            whole = row.request.card.whole and self._channel.draws_whole(card)
            handle = sent.handle if whole else {**sent.handle, PARTIAL: True}
            await self._sent.call([SentDelivery(row.token, sent.vendor_id, handle)])
            await self._record(row, "sent", vendor_id=sent.vendor_id)
        return 1

    async def _draw_room(self, row: DeliveryRow) -> int:
        """Post a room's card, or draw it again after a change."""
        before = None if row.state == "planned" else SentCard(vendor_id=row.vendor_id, handle=row.handle)
        found = {} if self._deps.taken is None else await self._deps.taken.find(row.tenant, [row.approval])
        taken = found.get(row.approval)
        holder, until = ("", None) if taken is None else (self._name(taken.person, row.tenant), taken.lapses_at)
        formatter = self._room_formatter(row)
        card = room_card(row.request, row.token, row.address, formatter, holder=holder, until=until)
        sent = await self._try_to_send([row], lambda: self._channel.deliver_room(card, before))
        if sent is None:
            return 0
        if before is None:
            await self._sent.call([SentDelivery(row.token, sent.vendor_id, sent.handle, "room")])
            await self._record(row, "sent", vendor_id=sent.vendor_id)
        # Draw it again at the lapse, to remove the holder's name.
        await self._cards.record_drawn(row, until)
        return 1

    async def _close_room(self, row: DeliveryRow) -> None:
        formatter = self._room_formatter(row)
        card = room_card(row.request, row.token, row.address, formatter, ended=True)
        sent = SentCard(vendor_id=row.vendor_id, handle=row.handle)
        await self.within(self._channel.deliver_room(card, sent))

    def _room(self, row: DeliveryRow) -> TeamRoom | None:
        """Return `None` for a room that is no longer declared."""
        place = (row.channel, row.address, row.tenant)
        every = (room for rooms in self._deps.rooms.values() for room in rooms)
        return next((room for room in every if (room.channel, room.room, room.tenant) == place), None)

    def _room_formatter(self, row: DeliveryRow) -> Formatter:
        room = self._room(row)
        # The members of a room have no common time zone.
        return self._channel.formatter(Person(id="", tenant=row.tenant, locale="" if room is None else room.locale))

    def _name(self, person: str, tenant: str) -> str:
        found = self._deps.people.find(person, tenant)
        return person if found is None else found.name or found.id

    async def _begin(self, rows: Sequence[DeliveryRow]) -> list[DeliveryRow]:
        """Record that an attempt to send `rows` begins.

        Returns the rows whose request has not ended since the claim.
        """
        begun = await self._tries.call([row.token for row in rows])
        for row in rows:
            if row.token not in begun:
                # No reminder follows, and the card may be closed.
                await self._cards.record_reminder(row.token)
        return [row for row in rows if row.token in begun]

    async def _digest(self, rows: Sequence[DeliveryRow]) -> int:
        """People approve each request by the link, and deny it by its code too."""
        card = await self._outbound_card(rows[0], "digest", more=len(rows) - 1)
        sent = await self._try_to_send(rows, lambda: self._channel.deliver(card, None))
        if sent is None:
            return 0
        await self._sent.call([SentDelivery(row.token, sent.vendor_id, sent.handle, "digest") for row in rows])
        for row in rows:
            await self._record(row, "sent", vendor_id=sent.vendor_id, together=len(rows))
        return 1

    async def close(self) -> int:
        """Close cards of ended requests. Returns how many were closed or given up. Raises `StoreUnavailable`."""
        if self.rests:
            return 0
        rows = await self._cards.claim_to_close(_AT_ONCE, self.name)
        # Close them in parallel: slow ones in sequence would outlast their claims.
        closed = await asyncio.gather(*map(self._over, rows))
        return sum(closed)

    async def _over(self, row: DeliveryRow) -> int:
        with bind_log_fields(fields_of_request(row.approval)):
            return await self._close_one(row)

    async def _close_one(self, row: DeliveryRow) -> int:
        person = self._deps.people.find(row.person, row.tenant)
        event, facts = "closed", dict[str, object]()
        try:
            if row.kind == "room":
                await self._close_room(row)
            # Do not close a digest: its other requests may still be open.
            elif row.kind != "digest" and person is not None:
                link = await self._deps.links(row)
                closed = ClosedCard(request=row.request, person=person, token=row.token, link=link, address=row.address)
                sent = SentCard(vendor_id=row.vendor_id, handle=row.handle)
                ending = await self.within(self._channel.close(sent, closed))
                await self._note_message(row, ending, whole=False)
        except NotDelivered as error:
            since = row.ended_at or row.changed_at
            if error.again and self._deps.clock() < since + CLOSE_WITHIN:
                pause = self.pause(row.attempts, error)
                await self._cards.record_failure(row.token, error.code, error.message, again_after=pause, closing=True)
                return 0
            event, facts = "not closed", {"code": error.code, "message": error.message}
        await self._cards.record_closed(row.token)
        await self._record(row, event, **facts)
        return 1

    async def _try_to_send(
        self, rows: Sequence[DeliveryRow], send: Callable[[], Awaitable[SentCard]]
    ) -> SentCard | None:
        """Send one message for `rows`.

        Returns None if the vendor did not acknowledge it: each card is tried again, or the person's next channel takes
        over.
        """
        try:
            return await self.within(send())
        except NotDelivered as error:
            for row in rows:
                await self._note_failure(row, error)
            return None

    async def _note_failure(self, row: DeliveryRow, error: NotDelivered) -> None:
        pause, deadline = self.pause(row.attempts, error), row.request.expires_at
        left = None if deadline is None else (deadline - self._deps.clock()).total_seconds()
        late = left is not None and pause >= left
        if error.again and late:
            # Do not send the card after the deadline. The vendor may have it, though, so it will be closed. The card is
            # tried again if the deadline is extended.
            pause = max(pause, (left or 0.0) + LONGEST_PAUSE)
        after = pause if error.again else None
        await self._cards.record_failure(row.token, error.code, error.message, again_after=after)
        if after is None or late:
            await self._record(row, "failed", code=error.code, message=error.message)
            await next_channel(self._cards, row)

    async def within(self, sending: Awaitable[SentCard | None]) -> SentCard:
        """Converts any error of the adapter to `NotDelivered`."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                return await sending or SentCard()
        except NotDelivered as error:
            self._count_failure(error.code)
            # Vendors quote requests in their errors, and some vendors' addresses contain the secret.
            message = self._deps.secrets.redact(error.message)
            raise NotDelivered(message, code=error.code, again=error.again, after=error.after) from None
        except TimeoutError:
            self._count_failure("timeout")
            raise NotDelivered("the vendor did not answer in time", code="timeout", again=True) from None
        except Exception as error:
            self._count_failure("error")
            _log.error("channel %s failed: %s", self.name, trace_without_words(error))
            raise NotDelivered(f"the channel failed: {type(error).__name__}", code="error", again=True) from None

    def _count_failure(self, code: str) -> None:
        self._cards.counts.count("signoff_card_attempts_failed", self.name, code)

    def pause(self, attempts: int, error: NotDelivered) -> float:
        """Return the seconds until the next attempt. A vendor's pause holds for the whole channel."""
        if error.after:
            # The vendor limits this channel as a whole, not only this card.
            self._not_before = self._deps.clock() + timedelta(seconds=min(error.after, LONGEST_PAUSE))
        # Cap the vendor's pause, which may be a day or nonsense, at our own longest pause.
        return min(max(error.after, 2.0 ** min(attempts - 1, 10)), LONGEST_PAUSE)

    async def _select_wanted(self, rows: Sequence[DeliveryRow]) -> list[DeliveryRow]:
        """Drop cards that the person may not answer, or has read on another channel."""
        # `delivered` does not count: the person may not have looked at the mailbox or phone.
        read = await self._cards.find_read_elsewhere([row.token for row in rows if row.state == "planned"])
        wanted = []
        for row in rows:
            refused = self._why_refused(row)
            may_answer = refused == ""
            if may_answer and row.token not in read:
                wanted.append(row)
                continue
            if refused == "unread" and row.token not in read:
                # A gateway that cannot read a rota must not drop the cards of those who may be on call.
                await self._cards.record_failure(row.token, row.code, row.message, again_after=_UNREAD_SECONDS)
                continue
            # `drop` affects only cards that are not sent yet, `record_reminder` only reminders of sent cards.
            await self._cards.drop(row.token)
            if not may_answer:
                await self._cards.record_reminder(row.token)
        return wanted

    def _why_refused(self, row: DeliveryRow) -> Literal["", "unread", "refused"]:
        if row.kind == "room":
            return "refused" if self._room(row) is None else ""
        # Use the current directory: a person who has left since the planning must not see the request.
        people, now = self._deps.people, self._deps.clock()
        person, spec = people.find(row.person, row.tenant), approver_spec_of(row.request)
        code = resolve_eligibility(person, people, spec, now).code
        if any(vote.subject == row.person for vote in row.request.votes):
            return "refused"
        if not code:
            return ""
        may_be_on_call = person is not None and person.active and code == "not_allowed"
        unread = may_be_on_call and has_unread(people, spec.terms.approvers, row.tenant, now)
        return "unread" if unread else "refused"

    async def _outbound_card(
        self, row: DeliveryRow, kind: Literal["ask", "remind", "digest"], more: int = 0
    ) -> OutboundCard:
        person = self._deps.people.find(row.person, row.tenant)
        return OutboundCard(
            token=row.token,
            kind=kind,
            request=row.request,
            person=person or Person(id=row.person, tenant=row.tenant),
            address=row.address,
            link=await self._deps.links(row),
            more=more,
            asks=kind == "ask" and self._deps.may_ask(row.request),
        )

    async def _note_message(self, row: DeliveryRow, sent: SentCard, *, whole: bool) -> None:
        if sent.vendor_id not in ("", row.vendor_id):
            shown = revision_shown(row)
            subject = subject_of(replace(shown, whole=shown.whole and whole))
            message = OwnMessage(subjects=(subject,))
            await self._deps.own_messages.note(self.name, sent.vendor_id, row.tenant, row.person, message)

    async def _record(self, row: DeliveryRow, event: str, **facts: object) -> None:
        to = {"room": row.address} if row.kind == "room" else {"person": row.person}
        facts = {**to, "channel": row.channel, **facts}
        await self._entries.call([delivery_entry(row.request, event, row.token, self._deps.clock(), facts)])


async def next_channel(cards: DeliveryQueue, failed: DeliveryRow) -> None:
    """Expedite the card on the person's next channel after `failed`."""
    rows = await cards.of_request(failed.approval, failed.revision)
    mine = [row for row in rows if row.person == failed.person and row.state == "planned" and row.tried_at is None]
    if mine:
        await cards.expedite(min(mine, key=lambda row: row.due_at).token)


def _cards_at_once(pace: float) -> int:
    return min(max(round(_CLAIMED_SECONDS / pace), _AT_ONCE), _MOST_AT_ONCE) if pace else _AT_ONCE


def _to_whom(row: DeliveryRow) -> tuple[str, str, str]:
    return row.tenant, row.person, row.address
