"""Processes answers: who gave each, which request it is about, what it decides, and the reply.

Answers are heard from the store, where the way in has kept them: whatever is down meanwhile, each is heard at last, and
decides once.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from pydantic import ValidationError

from signoff.approvals.audit_events import admin_entry, delivery_entry
from signoff.approvals.confirmation import needs_typing
from signoff.channels.base import Channel
from signoff.channels.envelopes import ChannelReply, DeliveryStatus, InboundAction
from signoff.channels.inbound.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.inbound.later_words import HELD, SAID, hold_seconds, is_held, later_actions
from signoff.channels.inbound.message_time import MessageTime, time_of_message
from signoff.channels.inbound.receiver import Record
from signoff.channels.inbound.reply_sender import send_reply
from signoff.channels.inbound.sent_mail import load_sent_words, may_send_for, note_sent_words
from signoff.channels.inbound.target import (
    AskedRevision,
    CodeLookup,
    Target,
    find_target,
    note_of,
    open_requests,
    read_note,
)
from signoff.channels.inbound.unknown_senders import UnknownSenders
from signoff.channels.mail.footers import footer_digest, read_mail_answer
from signoff.channels.outbound.card_text import How
from signoff.channels.outbound.receipt_text import doubtful_time_text, not_understood_text, which_request_text
from signoff.channels.outbound.sender import next_channel
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Verdict
from signoff.contracts.errors import Unavailable
from signoff.contracts.ids import show_code
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.formats.stack_trace import trace_without_words
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.footer_hashes import Footers
from signoff.store.inbound_queue import InboundQueue, InboundRow
from signoff.store.leases import LEASE_SECONDS
from signoff.store.store import Store
from signoff.texts.catalogue import ENGLISH, text
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import formatter_for

TICK_SECONDS: Final = 0.5
AT_ONCE: Final = 16
"""On one channel, answers of so many people are decided at the same time; those of one person one after the other."""
CLAIMED: Final = 4 * AT_ONCE
"""So much of a channel is claimed before anything of it is done; no channel waits for what another one has claimed."""
LONGEST_WAIT: Final = 300.0
CHOICES: Final = 10
"""Requests that are listed when it is asked which one was meant."""
KEPT: Final = timedelta(days=400)
"""For how long it is known what came in: longer than any request is open, and than any vendor repeats itself."""
STRANGERS_KEPT: Final = timedelta(days=30)
LATE: Final = timedelta(days=1)
"""So long after a request's last deadline, what could not be decided is given up."""
MISREADINGS: Final = 10
"""How often something is tried that fails for no reason of the world's, before it is left."""
_SWEEP_EVERY: Final = timedelta(hours=1)
_UNKNOWN_CARD_TRIES: Final = 5
_BEFORE_THE_END: Final = 5.0
"""Seconds of a claim in which what came of an answer is written down, and nobody is told anything any more."""
_WINDOW: Final = "trigger_id"
"""What in `InboundAction.where` lets a channel open a window instead of answering in words."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Made:
    """What was made of an arrival: `result` is None where that is to be seen later. `reply` is told `where`."""

    result: dict[str, Any] | None = None
    reply: ChannelReply | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    state: Literal["done", "dropped"] = "done"
    forgotten: bool = False
    hold: float = 0.0
    """Seconds until the arrival is read again, as if for the first time."""


class DecisionPort(CodeLookup, Protocol):
    """Decides requests: the gateway, or a test in its place."""

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor, *, again: bool = False) -> Receipt:
        """Decides what somebody was asked, in the revision that they were shown. Raises `Unavailable`.

        `pending` and `unavailable` are asked about again; the same delivery id counts once. `again`: it may have been
        sent before, so that only who can tell what became of it is asked.
        """
        ...

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """Returns an address at which this person can read the request, and decide it once they are signed in."""
        ...


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
        self._hold = hold
        self._arrivals = InboundQueue(store)
        self._deliveries = DeliveryQueue(store)
        self._footers = Footers(store)
        self._channels = channels
        self._directory = directory
        self._decisions = decisions
        self._record = record
        self._clock = clock
        self._woken = asyncio.Event()
        self._swept: datetime | None = None
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._strangers = {name: UnknownSenders(name, record, clock) for name in channels}
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
                answered = await send_reply(self._channels[row.channel], made.where, made.reply, until)
                result = None if result is None else {**result, "answered": answered}
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

    async def _again(self, row: InboundRow, failure: str = "") -> None:
        try:
            if failure:
                await self._arrivals.finish(row.key, {"what": "failed", "why": failure}, state="dropped")
            else:
                await self._arrivals.reschedule(row.key, backoff(row.attempts))
        except Unavailable:
            # It is claimed for a minute, and then anybody's again.
            _log.warning("the store does not take what is to become of %r", row.key)

    async def _made_of(self, row: InboundRow) -> _Made:
        """Processes an arrival; its sender has yet to be answered."""
        channel = self._channels.get(row.channel)
        if channel is None:
            # It may be back after the next start; until then this is looked at ever more rarely.
            return _Made()
        try:
            if row.kind == "status":
                return _Made(
                    await self._handle_report(channel, DeliveryStatus.model_validate_json(row.body), row.attempts)
                )
            action = InboundAction.model_validate_json(row.body)
        except ValidationError:
            return _Made({"what": "unreadable"})
        return await self._handle_action(channel, action, row)

    async def _handle_report(self, channel: Channel, status: DeliveryStatus, attempts: int) -> dict[str, Any] | None:
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

    async def _handle_action(self, channel: Channel, action: InboundAction, row: InboundRow) -> _Made:
        person = await self._who(channel, action)
        if person is None:
            return await self._stranger(channel, action)
        if action.sender and not await self._may_send(channel, action, person, row):
            formatter = formatter_for(person, self._clock())
            words = formatter.text("reply.sender", sender=action.sender, person=person.name or person.id)
            reply = ChannelReply(text=words, language=formatter.language)
            return _Made({"what": "sender", "person": person.id}, reply, _in_words(action.where))
        when = time_of_message(action.said_at, row.received_at)
        answer = _read(action, await self._sender(channel, action, person, when))
        in_words = answer.verdict == "approved" and action.verdict is None
        if row.about is not None and answer.verdict is not None:
            asked = read_note(row.about)
            if in_words and is_held(row.about) and await self._is_taken_back(channel, action, person, asked, row):
                return self._taken_back(action, person, asked)
            # It may be decided already, and what is open now is not what was open then.
            return await self._decide(channel, action, person, answer, asked, row)
        denies = answer.verdict == "denied"
        about = await find_target(
            self._deliveries, self._decisions, channel, person, action, answer.code, when, denies=denies
        )
        if about.from_others_card and any(self._may_answer(person, asked.request) for asked in about.asked):
            about = replace(about, certain=False)
        if answer.effects and not {asked.request.code for asked in about.asked} <= answer.effects:
            # What was repeated is another request's.
            about = replace(about, certain=False)
        if answer.verdict is None or not about.certain:
            return await self._question(channel, action, person, answer, about)
        asked = about.asked[0]
        request = asked.request
        # A template has buttons where its card should have none, and words can be written below any card.
        typed = needs_typing(request) or request.kind == "in_doubt"
        unseen = answer.verdict == "approved" and not asked.whole
        if request.state == "pending" and (typed or unseen) and self._may_answer(person, request):
            language = formatter_for(person, self._clock()).language
            link = await self._decisions.link(request, person, channel.kind)
            why = text("reply.link_only" if typed else "reply.unseen", language)
            words = f"{why} {text('reply.see', language, link=link)}"
            reply = ChannelReply(text=words, language=language)
            return _Made({"what": "link", "person": person.id}, reply, action.where)
        if in_words:
            if await self._is_taken_back(channel, action, person, asked, row):
                return self._taken_back(action, person, asked)
            if seconds := hold_seconds(self._hold, request, self._clock()):
                await self._arrivals.note(row.key, note_of(asked) | {HELD: True})
                return self._held(action, person, asked, seconds)
        # Noted before it is decided: after a crash in between, the next try must not be about what is shown by then.
        asked = read_note(await self._arrivals.note(row.key, note_of(asked)))
        return await self._decide(channel, action, person, answer, asked, row)

    async def _is_taken_back(
        self, channel: Channel, action: InboundAction, person: Person, asked: AskedRevision, row: InboundRow
    ) -> bool:
        """Return whether later words of an approval's author deny it, or leave it in doubt."""
        waiting, asked_back = later_actions(row, action, await self._arrivals.others_of_author(row))
        for other, written in waiting:
            when = time_of_message(written.said_at, other.received_at)
            answer = _read(written, await self._sender(channel, written, person, when))
            if answer.verdict == "approved":
                continue
            about = await find_target(
                self._deliveries, self._decisions, channel, person, written, answer.code, when, denies=True
            )
            named = {each.request.id for each in about.asked}
            if not named or asked.request.id in named:
                return True
        return asked_back

    def _taken_back(self, action: InboundAction, person: Person, asked: AskedRevision) -> _Made:
        formatter = formatter_for(person, self._clock())
        words = formatter.text("reply.taken_back", code=show_code(asked.request.code))
        reply = ChannelReply(text=words, language=formatter.language)
        return _Made({"what": "taken back", "person": person.id}, reply, _in_words(action.where))

    def _held(self, action: InboundAction, person: Person, asked: AskedRevision, seconds: float) -> _Made:
        formatter = formatter_for(person, self._clock())
        code, span = show_code(asked.request.code), formatter.span(seconds)
        words = formatter.text("reply.held", code=code, span=span)
        return _Made(None, ChannelReply(text=words, language=formatter.language), _in_words(action.where), hold=seconds)

    async def _decide(
        self,
        channel: Channel,
        action: InboundAction,
        person: Person,
        answer: ParsedAnswer,
        asked: AskedRevision,
        row: InboundRow,
    ) -> _Made:
        """Decides an answer that names one request."""
        assert answer.verdict is not None
        link = await self._decisions.link(asked.request, person, channel.kind)
        author = DecisionAuthor(person, channel.kind, channel.assurance, row.received_at, by_card=True)
        draft = _draft(asked, answer.verdict, answer.comment, row)
        receipt = await self._decisions.decide(draft, author, again=row.attempts > 1)
        formatter = formatter_for(person, self._clock())
        words = receipt_words(receipt, formatter, link, code=asked.request.code)
        reply = ChannelReply(text=words, receipt=receipt, language=formatter.language)
        facts = {"person": person.id, "approval": receipt.approval_id}
        if receipt.code == "unavailable" and self._clock() >= _over(asked.request, row) + LATE:
            return _Made({"what": "given up", **facts, "code": receipt.code}, reply, action.where, state="dropped")
        if receipt.status == "pending" or receipt.code == "unavailable":
            # It is kept and tried again, of which somebody is told once.
            kept = Receipt(status="pending", approval_id=asked.request.id, verdict=answer.verdict)
            pending_reply = ChannelReply(
                text=receipt_words(kept, formatter, code=asked.request.code), receipt=kept, language=formatter.language
            )
            return _Made(None, pending_reply if row.about is None else None, action.where)
        if answer.footer and receipt.status in ("accepted", "counted"):
            await self._footers.confirm(person.tenant, person.id, footer_digest(answer.footer))
        made = {"what": "decided", **facts, "status": receipt.status, "code": receipt.code}
        return _Made(_drop_empty(made), reply, action.where)

    async def _who(self, channel: Channel, action: InboundAction) -> Person | None:
        """Returns the one active person who is that identity: in the tenant of the card, else in whichever tenant it
        is.
        """
        card = await self._deliveries.by_token(action.token) if action.token else None
        # An identity is one person's within a tenant alone. Without a card to say which, two people are nobody.
        everywhere = dict.fromkeys(person.tenant for person in self._directory.all())
        tenants = everywhere if card is None else (card.tenant,)
        found = [self._directory.by_identity(channel.identity, action.identity, tenant) for tenant in tenants]
        people = [person for person in found if person is not None and person.active]
        return people[0] if len(people) == 1 else None

    async def _may_send(self, channel: Channel, action: InboundAction, person: Person, row: InboundRow) -> bool:
        """Records a mail that another address sent in a person's name; returns whether that address may."""
        allowed = may_send_for(person, action.sender, self._directory, channel.identity, row.received_at)
        facts = {"sender": action.sender, "channel": channel.name, "allowed": allowed}
        subject, key = person.id, f"sender/{row.key}"
        entry = admin_entry(
            person.tenant, "mail sent for another", subject, row.received_at, kind="attempt", key=key, **facts
        )
        await self._record([entry])
        return allowed

    async def _stranger(self, channel: Channel, action: InboundAction) -> _Made:
        """Tells a stranger once a day that nobody knows them, and nothing of what there is."""
        met = await self._strangers[channel.name].count_sender(action.identity)
        reply = ChannelReply(text=text("reply.stranger", ENGLISH)) if met == "new" else None
        return _Made({"what": "stranger"}, reply, _in_words(action.where), forgotten=met == "many")

    async def _question(
        self, channel: Channel, action: InboundAction, person: Person, answer: ParsedAnswer, about: Target
    ) -> _Made:
        """Asks back where an answer decides nothing; only about requests that its author may decide."""
        formatter = formatter_for(person, self._clock())
        found = {asked.request.id: asked.request for asked in about.asked if self._may_answer(person, asked.request)}
        requests = list(found.values())[:CHOICES]
        where = action.where if requests and about.certain else _in_words(action.where)
        if not requests:
            # The same words for what is others' and for what there is not: by asking, nobody finds out which it is.
            message = "receipt.unknown" if answer.code or action.token else "reply.none"
            reply = ChannelReply(text=text(message, formatter.language))
        elif about.doubt and answer.verdict is not None:
            link = await self._decisions.link(requests[0], person, channel.kind)
            reply = ChannelReply(text=doubtful_time_text(about.doubt, requests, formatter, link))
        elif about.certain or (answer.verdict is None and len(requests) == 1):
            link = await self._decisions.link(requests[0], person, channel.kind)
            # With the code they say that they mean this request, and that the rest says nothing.
            coded = bool(answer.unread) or not (action.token or action.vendor_ids)
            how: How = "text" if coded else "reply"
            if answer.footer:
                await self._footers.ask(person.tenant, person.id, footer_digest(answer.footer), requests[0].code)
            message = not_understood_text(
                requests[0], formatter, link, how=how, unread=answer.unread, footer=bool(answer.footer)
            )
            reply = ChannelReply(text=message)
        else:
            reply = ChannelReply(
                text=which_request_text(requests, formatter), choices=tuple(show_code(each.code) for each in requests)
            )
        reply = reply.model_copy(update={"language": formatter.language})
        said = action.said_at.isoformat() if action.said_at else ""
        return _Made(_drop_empty({"what": "asked", "person": person.id, "why": answer.why, SAID: said}), reply, where)

    async def _sender(self, channel: Channel, action: InboundAction, person: Person, when: MessageTime) -> AnswerSender:
        """Describes the author of an answer, with all that reading it depends on."""
        if action.verdict is not None:
            return AnswerSender(person.locale)
        requests = await open_requests(self._deliveries, channel, person, when)
        mail = action.form == "mail"
        footers = await self._footers.list_newest(person.tenant, person.id) if mail else ()
        # A mail's address is one of its writer's names too: `ana.sousa@example.org`.
        names = (
            (person.name, action.name, action.identity.partition("@")[0].replace(".", " ")) if mail else (person.name,)
        )
        return AnswerSender(
            locale=person.locale,
            names=names,
            effects={request.code: request.card.effect for request in requests},
            footers=frozenset(each.digest for each in footers if each.known),
            asked=frozenset((each.digest, each.code) for each in footers),
            sent=await load_sent_words(self._deliveries, channel, action) if mail else (),
            others=not set(action.others) <= set(person.identities.get(channel.identity, ())),
        )

    def _may_answer(self, person: Person, request: ApprovalRequest) -> bool:
        spec = approver_spec_of(request)
        return not resolve_eligibility(person, self._directory, spec, self._clock()).code


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


def _read(action: InboundAction, sender: AnswerSender) -> ParsedAnswer:
    """Reads an answer: of a button, else of words."""
    if action.verdict is not None:
        return ParsedAnswer(action.verdict, "", action.reason or action.text.strip())
    if action.unclear:
        return ParsedAnswer(None, "", action.text, "empty" if action.unclear == "nothing" else "more")
    if action.form == "mail":
        above, below, quoted = (each.split("\n") for each in (action.text, action.below, action.quoted))
        return read_mail_answer(above, below, sender, quoted)
    return parse_answer(action.text, sender)


def _draft(asked: AskedRevision, verdict: Verdict, reason: str, row: InboundRow) -> DecisionDraft:
    return DecisionDraft.model_validate(
        {
            "approval_id": asked.request.id,
            "revision": asked.revision,
            "question_hash": asked.question_hash,
            "verdict": verdict,
            "reason": reason if len(reason) <= REASON_CHARS else reason[: REASON_CHARS - 1] + "…",
            # Part of an Update's id, by which a retry counts once; vendors' keys may be of any length.
            "delivery_id": hashlib.sha256(row.key.encode()).hexdigest()[:32],
        }
    )


def _over(request: ApprovalRequest, row: InboundRow) -> datetime:
    """Returns when the time of a request is over at the latest: its deadline may be put off once."""
    once = timedelta(seconds=request.timeout)
    return (request.expires_at or row.received_at + once) + once


def _in_words(where: Mapping[str, Any]) -> dict[str, Any]:
    """Returns where somebody is answered in words: no window is opened for who has nothing to say in it."""
    return {name: value for name, value in where.items() if name != _WINDOW}


def _drop_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those facts that say something."""
    return {name: value for name, value in facts.items() if value}
