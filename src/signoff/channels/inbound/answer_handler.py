"""Handles an answer: finds its author and request, decides, and makes the reply."""

import dataclasses
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, Protocol

from signoff.approvals.audit_events import admin_entry
from signoff.approvals.confirmation import needs_typing
from signoff.approvals.machine import lacks_reason
from signoff.channels.answer_text.answer_parser import AnswerSender, ParsedAnswer, parse_answer
from signoff.channels.answer_text.footers import footer_digest, read_mail_answer
from signoff.channels.asked_revision import AskedRevision, note_of, read_note
from signoff.channels.base import Channel
from signoff.channels.card_text import How
from signoff.channels.envelopes import ChannelReply, InboundAction
from signoff.channels.inbound.message_time import (
    CHANGES,
    HELD,
    SAID,
    MessageTime,
    hold_seconds,
    is_held,
    later_actions,
    time_of_message,
)
from signoff.channels.inbound.outcome import Outcome, ReplyLimit, UnknownSenders, drop_empty, in_words
from signoff.channels.inbound.receiver import Record
from signoff.channels.inbound.room_handler import RoomHandler
from signoff.channels.inbound.sent_mail import load_sent_words, may_send_for
from signoff.channels.inbound.target import CodeLookup, Target, find_target, open_requests
from signoff.channels.outbound.receipt_text import doubtful_time_text, not_understood_text, which_request_text
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.clock import Clock
from signoff.contracts.decision import Verdict
from signoff.contracts.ids import show_code
from signoff.contracts.limits import REASON_CHARS
from signoff.contracts.person import Person
from signoff.contracts.receipt import Receipt
from signoff.contracts.requests import DecisionAuthor, DecisionDraft
from signoff.formats.replace import replace
from signoff.languages.catalogue import ENGLISH, text
from signoff.people.directory import Directory
from signoff.people.eligibility import approver_spec_of, resolve_eligibility
from signoff.store.delivery_queue import DeliveryQueue
from signoff.store.inbound_queue import InboundQueue, InboundRow
from signoff.store.messages.footer_hashes import Footers
from signoff.store.messages.own_messages import OwnMessages
from signoff.store.store import Store
from signoff.texts.endings import receipt_words
from signoff.texts.formatter import formatter_for

REACTION: Final = "reaction"
"""The value of `InboundAction.unclear` for an emoji below a message."""
CHOICES: Final = 10
"""The most requests in a reply that asks which one was meant."""
LATE: Final = timedelta(days=1)
"""How long after a request's last deadline an answer is dropped that could not be decided."""


class DecisionPort(CodeLookup, Protocol):
    """Decides requests: the gateway, or a test double."""

    async def decide(self, draft: DecisionDraft, author: DecisionAuthor) -> Receipt:
        """Decide a request in the revision that the author was shown.

        Raises `Unavailable`. The caller tries again after `pending` and `unavailable`; the same delivery id counts
        once.
        """
        ...

    async def ask(self, asked: AskedRevision, question: str, author: DecisionAuthor, *, again: bool) -> Receipt:
        """Ask the agent about the revision that the author was shown.

        Raises `Unavailable`. The caller tries `again`, and then the same question counts once.
        """
        ...

    async def link(self, request: ApprovalRequest, person: Person, channel: str) -> str:
        """Return the address of a page where the person can read the request, and decide it after a sign-in."""
        ...

    def may_ask(self, request: ApprovalRequest) -> bool:
        """Return whether approvers can ask the agent about a request."""
        ...


class AnswerHandler:
    """An approval in words waits `hold` seconds for later words of its author."""

    def __init__(
        self,
        store: Store,
        channels: Mapping[str, Channel],
        directory: Directory,
        decisions: DecisionPort,
        record: Record,
        clock: Clock,
        *,
        hold: float,
    ) -> None:
        self._hold = hold
        self._arrivals = InboundQueue(store)
        self._deliveries = DeliveryQueue(store)
        self._own_messages = OwnMessages(store)
        self._footers = Footers(store)
        self._directory = directory
        self._decisions = decisions
        self._record = record
        self._clock = clock
        self._limit = ReplyLimit(self._arrivals, record)
        self._rooms = RoomHandler(store, directory, decisions, clock)
        self._strangers = {name: UnknownSenders(name, record, clock) for name in channels}

    async def handle(self, channel: Channel, action: InboundAction, row: InboundRow) -> Outcome:
        """Raises `Unavailable`."""
        if action.room is not None:
            return await self._rooms.handle(channel, action, self._strangers[channel.name])
        person = await self._who(channel, action)
        if person is None:
            return await self._stranger(channel, action)
        outcome = await self._answer(channel, action, person, row)
        return await self._limit.apply(person, action, row, dataclasses.replace(outcome, person=person))

    async def _answer(self, channel: Channel, action: InboundAction, person: Person, row: InboundRow) -> Outcome:
        if action.sender and not await self._may_send(channel, action, person, row):
            formatter = formatter_for(person, self._clock())
            words = formatter.text("reply.sender", sender=action.sender, person=person.name or person.id)
            reply = ChannelReply(text=words, language=formatter.language)
            return Outcome({"what": "sender", "person": person.id}, reply, in_words(action.where))
        if action.changes:
            return await self._note_change(channel, action, person)
        when = time_of_message(action.said_at, row.received_at)
        answer = _read(action, await self._sender(channel, action, person, when))
        by_words = answer.verdict == "approved" and action.verdict is None
        if row.about is not None and (answer.verdict is not None or answer.question):
            asked = read_note(row.about)
            if answer.question:
                return await self._ask(channel, action, person, answer.question, asked, row)
            if by_words and is_held(row.about) and await self._is_taken_back(channel, action, person, asked, row):
                return self._taken_back(action, person, asked)
            # Decide the noted revision: it may be decided already, and another revision may be open now.
            return await self._decide(channel, action, person, answer, asked, row)
        denies = answer.verdict == "denied"
        about = await self._target(channel, person, action, answer.code, when, denies=denies)
        if about.from_others_card and any(self._may_answer(person, asked.request) for asked in about.asked):
            about = dataclasses.replace(about, certain=False)
        if answer.effects and not {asked.request.code for asked in about.asked} <= answer.effects:
            # The answer repeats another request's effect.
            about = dataclasses.replace(about, certain=False)
        if action.unclear == REACTION and not any(asked.request.state == "pending" for asked in about.asked):
            # People also react to ended requests, and need no reply.
            return Outcome({"what": "reaction", "person": person.id})
        if answer.question and about.certain:
            asked = read_note(await self._arrivals.note(row.key, note_of(about.asked[0])))
            return await self._ask(channel, action, person, answer.question, asked, row)
        if answer.verdict is None or not about.certain:
            return await self._question(channel, action, person, answer, about)
        asked = about.asked[0]
        request = asked.request
        # A template has buttons even if its card should have none, and people can reply in words to any card.
        typed = needs_typing(request) or request.kind == "in_doubt"
        unseen = answer.verdict == "approved" and not asked.whole
        if request.state == "pending" and (typed or unseen) and self._may_answer(person, request):
            language = formatter_for(person, self._clock()).language
            link = await self._decisions.link(request, person, channel.kind)
            why = text("reply.link_only" if typed else "reply.unseen", language)
            words = f"{why} {text('reply.see', language, link=link)}"
            reply = ChannelReply(text=words, language=language)
            return Outcome({"what": "link", "person": person.id}, reply, action.where, about=(asked,))
        if (
            request.state == "pending"
            and lacks_reason(request, answer.verdict, answer.comment)
            and self._may_answer(person, request)
        ):
            return self._reason_missing(action, person, asked)
        if by_words:
            if await self._is_taken_back(channel, action, person, asked, row):
                return self._taken_back(action, person, asked)
            if seconds := hold_seconds(self._hold, request, self._clock()):
                await self._arrivals.note(row.key, note_of(asked) | {HELD: True})
                return self._held(action, person, asked, seconds)
        # Note the revision before deciding. After a crash in between, the next attempt must not use a later revision.
        asked = read_note(await self._arrivals.note(row.key, note_of(asked)))
        return await self._decide(channel, action, person, answer, asked, row)

    async def _is_taken_back(
        self, channel: Channel, action: InboundAction, person: Person, asked: AskedRevision, row: InboundRow
    ) -> bool:
        """Return whether later words of an approval's author deny it or make it doubtful."""
        waiting, is_doubtful = later_actions(row, action, await self._arrivals.others_of_author(row))
        for other, written in waiting:
            when = time_of_message(written.said_at, other.received_at)
            answer = _read(written, await self._sender(channel, written, person, when))
            if answer.verdict == "approved":
                continue
            about = await self._target(channel, person, written, answer.code, when, denies=True)
            named = {each.request.id for each in about.asked}
            if not named or asked.request.id in named:
                return True
        return is_doubtful

    async def _target(
        self, channel: Channel, person: Person, action: InboundAction, code: str, when: MessageTime, *, denies: bool
    ) -> Target:
        stored = (self._deliveries, self._own_messages, self._decisions)
        return await find_target(*stored, channel, person, action, code, when, denies=denies)

    def _taken_back(self, action: InboundAction, person: Person, asked: AskedRevision) -> Outcome:
        formatter = formatter_for(person, self._clock())
        words = formatter.text("reply.taken_back", code=show_code(asked.request.code))
        reply = ChannelReply(text=words, language=formatter.language)
        return Outcome({"what": "taken back", "person": person.id}, reply, in_words(action.where), about=(asked,))

    async def _note_change(self, channel: Channel, action: InboundAction, person: Person) -> Outcome:
        """Handle an edited or deleted message. A held approval finds this result when its hold ends."""
        earlier = await self._arrivals.read(channel.name, "action", action.changes)
        language = formatter_for(person, self._clock()).language
        result = {"what": "changed", "person": person.id, CHANGES: action.changes}
        where = in_words(action.where)
        if earlier is not None and _has_counted(earlier):
            return Outcome(result, ChannelReply(text=text("reply.changed_late", language), language=language), where)
        if action.unclear == "deleted" and (earlier is None or earlier.state != "new"):
            # The deleted message had decided nothing.
            return Outcome(result)
        said = action.said_at.isoformat() if action.said_at else ""
        asked = drop_empty({**result, "what": "asked", "why": "more", SAID: said})
        return Outcome(asked, ChannelReply(text=text("reply.changed", language), language=language), where)

    def _reason_missing(self, action: InboundAction, person: Person, asked: AskedRevision) -> Outcome:
        language = formatter_for(person, self._clock()).language
        words = text("reply.reason", language, deny=text("word.deny", language), code=show_code(asked.request.code))
        reply = ChannelReply(text=words, language=language)
        result = {"what": "asked", "person": person.id, "why": "reason"}
        return Outcome(result, reply, in_words(action.where), about=(asked,))

    def _held(self, action: InboundAction, person: Person, asked: AskedRevision, seconds: float) -> Outcome:
        formatter = formatter_for(person, self._clock())
        code, span = show_code(asked.request.code), formatter.span(seconds)
        words = formatter.text("reply.held", code=code, span=span)
        reply = ChannelReply(text=words, language=formatter.language)
        return Outcome(None, reply, in_words(action.where), about=(asked,), hold=seconds)

    async def _ask(
        self,
        channel: Channel,
        action: InboundAction,
        person: Person,
        question: str,
        asked: AskedRevision,
        row: InboundRow,
    ) -> Outcome:
        author = DecisionAuthor(person, channel.kind, channel.assurance, row.received_at, by_card=True)
        receipt = await self._decisions.ask(asked, question, author, again=row.about is not None)
        link = await self._decisions.link(asked.request, person, channel.kind)
        formatter = formatter_for(person, self._clock())
        words = receipt_words(receipt, formatter, link, code=asked.request.code)
        reply = ChannelReply(text=words, receipt=receipt, language=formatter.language)
        said = action.said_at.isoformat() if action.said_at else ""
        made = {"what": "question", "person": person.id, "approval": receipt.approval_id, SAID: said}
        made |= {"status": receipt.status, "code": receipt.code}
        return Outcome(drop_empty(made), reply, in_words(action.where), about=(asked,))

    async def _decide(
        self,
        channel: Channel,
        action: InboundAction,
        person: Person,
        answer: ParsedAnswer,
        asked: AskedRevision,
        row: InboundRow,
    ) -> Outcome:
        assert answer.verdict is not None
        link = await self._decisions.link(asked.request, person, channel.kind)
        author = DecisionAuthor(person, channel.kind, channel.assurance, row.received_at, by_card=True)
        draft = _draft(asked, answer.verdict, answer.comment, row)
        receipt = await self._decisions.decide(draft, author)
        formatter = formatter_for(person, self._clock())
        words = receipt_words(receipt, formatter, link, code=asked.request.code)
        reply = ChannelReply(text=words, receipt=receipt, language=formatter.language)
        facts = {"person": person.id, "approval": receipt.approval_id}
        if receipt.code == "unavailable" and self._clock() >= _over(asked.request, row) + LATE:
            result = {"what": "given up", **facts, "code": receipt.code}
            return Outcome(result, reply, action.where, state="dropped", about=(asked,))
        if receipt.status == "pending" or receipt.code == "unavailable":
            # The answer is stored and tried again. Its author gets this reply once.
            kept = Receipt(status="pending", approval_id=asked.request.id, verdict=answer.verdict)
            pending_reply = ChannelReply(
                text=receipt_words(kept, formatter, code=asked.request.code), receipt=kept, language=formatter.language
            )
            return Outcome(None, pending_reply if row.about is None else None, action.where, about=(asked,))
        if answer.footer and receipt.status in ("accepted", "counted"):
            await self._footers.confirm(person.tenant, person.id, footer_digest(answer.footer))
        made = {"what": "decided", **facts, "status": receipt.status, "code": receipt.code}
        return Outcome(drop_empty(made), reply, action.where, about=(asked,))

    async def _who(self, channel: Channel, action: InboundAction) -> Person | None:
        """Return the one active person with the action's identity, in the card's tenant or else in all tenants."""
        card = await self._deliveries.by_token(action.token) if action.token else None
        # An identity is unique only within a tenant. Without a card that names the tenant, two matches count as none.
        everywhere = dict.fromkeys(person.tenant for person in self._directory.all())
        tenants = everywhere if card is None else (card.tenant,)
        matches = [self._directory.by_identity(channel.identity, action.identity, tenant) for tenant in tenants]
        people = [person for person in matches if person is not None and person.active]
        return people[0] if len(people) == 1 else None

    async def _may_send(self, channel: Channel, action: InboundAction, person: Person, row: InboundRow) -> bool:
        """Record an email that another address sent in a person's name. Returns whether that address may do so."""
        allowed = may_send_for(person, action.sender, self._directory, channel.identity, row.received_at)
        facts = {"sender": action.sender, "channel": channel.name, "allowed": allowed}
        subject, key = person.id, f"sender/{row.key}"
        entry = admin_entry(
            person.tenant, "mail sent for another", subject, row.received_at, kind="attempt", key=key, **facts
        )
        await self._record([entry])
        return allowed

    async def _stranger(self, channel: Channel, action: InboundAction) -> Outcome:
        """Reply to a stranger once a day that they are unknown, without revealing anything else."""
        met = await self._strangers[channel.name].count_sender(action.identity)
        reply = ChannelReply(text=text("reply.stranger", ENGLISH)) if met == "new" else None
        return Outcome({"what": "stranger"}, reply, in_words(action.where), forgotten=met == "many")

    async def _question(
        self, channel: Channel, action: InboundAction, person: Person, answer: ParsedAnswer, about: Target
    ) -> Outcome:
        """Ask back about an answer that decides nothing, naming only requests that its author may decide."""
        formatter = formatter_for(person, self._clock())
        answerable = {asked.request.id: asked for asked in about.asked if self._may_answer(person, asked.request)}
        listed = tuple(answerable.values())[:CHOICES]
        requests = [asked.request for asked in listed]
        where = action.where if requests and about.certain else in_words(action.where)
        if not requests:
            # Use the same text for other people's requests and for unknown ones, so that a guess reveals nothing.
            message = "receipt.unknown" if answer.code or action.token else "reply.none"
            reply = ChannelReply(text=text(message, formatter.language))
        elif about.doubt and (answer.verdict is not None or answer.question):
            link = await self._decisions.link(requests[0], person, channel.kind)
            reply = ChannelReply(text=doubtful_time_text(about.doubt, requests, formatter, link))
        elif about.certain or (answer.verdict is None and not answer.question and len(requests) == 1):
            link = await self._decisions.link(requests[0], person, channel.kind)
            # With the code the author confirms this request, and that the other text means nothing.
            coded = bool(answer.unread) or not (action.token or action.vendor_ids)
            how: How = "text" if coded else "reply"
            if answer.footer:
                await self._footers.ask(person.tenant, person.id, footer_digest(answer.footer), requests[0].code)
            message = not_understood_text(
                requests[0],
                formatter,
                link,
                how=how,
                unread=answer.unread,
                footer=bool(answer.footer),
                asks=answer.why == "question",
            )
            reply = ChannelReply(text=message, reason_required=requests[0].require_reason)
        else:
            reply = ChannelReply(
                text=which_request_text(requests, formatter, asks=bool(answer.question)),
                choices=() if answer.question else tuple(show_code(each.code) for each in requests),
            )
        reply = replace(reply, language=formatter.language)
        said = action.said_at.isoformat() if action.said_at else ""
        result = drop_empty({"what": "asked", "person": person.id, "why": answer.why, SAID: said})
        return Outcome(result, reply, where, about=listed)

    async def _sender(self, channel: Channel, action: InboundAction, person: Person, when: MessageTime) -> AnswerSender:
        if action.verdict is not None or action.question:
            return AnswerSender(person.locale)
        requests = await open_requests(self._deliveries, channel, person, when)
        mail = action.form == "mail"
        footers = await self._footers.list_newest(person.tenant, person.id) if mail else ()
        # An email's address also has the writer's name: `ana.sousa@example.org`.
        names = (
            (person.name, action.name, action.identity.partition("@")[0].replace(".", " ")) if mail else (person.name,)
        )
        return AnswerSender(
            locale=person.locale,
            names=names,
            effects={request.code: request.card.effect for request in requests},
            footers=frozenset(each.digest for each in footers if each.known),
            asked=frozenset((each.digest, each.code) for each in footers),
            sent=await load_sent_words(self._deliveries, self._own_messages, channel, person, action) if mail else (),
            others=not set(action.others) <= set(person.identities.get(channel.identity, ())),
        )

    def _may_answer(self, person: Person, request: ApprovalRequest) -> bool:
        spec = approver_spec_of(request)
        return not resolve_eligibility(person, self._directory, spec, self._clock()).code


def _read(action: InboundAction, sender: AnswerSender) -> ParsedAnswer:
    if action.verdict is not None:
        return ParsedAnswer(action.verdict, "", action.reason or action.text.strip())
    if action.question:
        return ParsedAnswer(None, question=action.question)
    if action.unclear:
        return ParsedAnswer(None, "", action.text, "empty" if action.unclear == "nothing" else "more")
    if action.form == "mail":
        above, below, quoted = (each.split("\n") for each in (action.text, action.below, action.quoted))
        return read_mail_answer(above, below, sender, quoted)
    return parse_answer(action.text, sender)


def _has_counted(row: InboundRow) -> bool:
    """True also while the decision of the message is on its way."""
    if row.state == "new":
        return row.about is not None and not is_held(row.about)
    return (row.result or {}).get("status") in ("accepted", "counted")


def _draft(asked: AskedRevision, verdict: Verdict, reason: str, row: InboundRow) -> DecisionDraft:
    return DecisionDraft.model_validate(
        {
            "approval_id": asked.request.id,
            "revision": asked.revision,
            "question_hash": asked.question_hash,
            "thread": asked.thread if verdict == "approved" else "",
            "verdict": verdict,
            "reason": reason if len(reason) <= REASON_CHARS else reason[: REASON_CHARS - 1] + "…",
            # Part of an Update's id, so that a retry counts once. Hash the key, as vendors' keys may have any length.
            "delivery_id": hashlib.sha256(row.key.encode()).hexdigest()[:32],
        }
    )


def _over(request: ApprovalRequest, row: InboundRow) -> datetime:
    """Return the latest possible deadline of a request, which may be extended once."""
    once = timedelta(seconds=request.timeout)
    return (request.expires_at or row.received_at + once) + once
