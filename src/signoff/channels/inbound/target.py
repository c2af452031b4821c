"""Finds the request of an answer: by its card, else by its code, else the only open request."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from signoff.approvals.request_thread import answers_in
from signoff.channels.asked_revision import UNKNOWN, AskedRevision, revision_shown
from signoff.channels.base import Channel
from signoff.channels.envelopes import InboundAction
from signoff.channels.inbound.message_time import SLACK, MessageTime
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.store.delivery_queue import DeliveryQueue, DeliveryRow
from signoff.store.messages.own_messages import MessageSubject, OwnMessages

Doubt = Literal["", "before", "untimed"]
"""Why an answer's time lets it decide nothing: it was written before the request was sent, or its time is unknown."""


@dataclass(frozen=True)
class Target:
    """The requests that an answer can be about."""

    asked: tuple[AskedRevision, ...]
    certain: bool
    """Whether the answer surely means its one candidate."""
    from_others_card: bool = False
    """Whether the answer is only in words, to another person's card.

    That person may have passed on the card's address for another purpose. An author who could decide by it is asked for
    the code.
    """
    doubt: Doubt = ""
    """Why the time of the answer makes it uncertain."""


class CodeLookup(Protocol):
    """Finds requests by their code if no card was sent."""

    async def with_code(self, person: Person, code: str) -> Sequence[ApprovalRequest]:
        """Return the requests with a short code, waiting or decided, that `person` may decide. Raises `Unavailable`."""
        ...


async def find_target(
    deliveries: DeliveryQueue,
    own_messages: OwnMessages,
    codes: CodeLookup,
    channel: Channel,
    person: Person,
    action: InboundAction,
    code: str,
    when: MessageTime,
    *,
    denies: bool = False,
) -> Target:
    """Return the requests that `action` is about.

    If the action names a card, its time does not matter. Words without a card are about the cards that were out when
    they were written. A denial with a code (`denies`) is about the revision that is open at its arrival. A reply to
    another message from Signoff is about that message's requests. A reply to a notice is never certain. Raises
    `Unavailable`.
    """
    if not action.token and not action.vendor_ids:
        if code:
            return await _by_code(deliveries, codes, channel, person, code, when, denies=denies)
        return await _open(deliveries, channel, person, when)
    rows = await _find_named(deliveries, channel, person, action)
    ours = await own_messages.find(channel.name, action.vendor_ids, person.tenant, person.id)
    if ours is not None and ours.notice:
        # The author read no card there. Even a code is only asked back.
        return dataclasses.replace(await _open(deliveries, channel, person, when), certain=False)
    own = () if ours is None else await _asked_by(deliveries, codes, person, ours.subjects)
    if own and not code and {each.request.id for each in own} != {row.approval for row in rows}:
        # A token names its card, but our question in that thread was also about other requests.
        return Target((*_list_shown(rows), *own), certain=False) if action.token else _one_of(own)
    if ours is not None and not ours.subjects and not rows:
        # Our message was about no request, so treat the words as if they named no card.
        return await find_target(
            *(deliveries, own_messages, codes, channel, person),
            *(replace(action, token="", vendor_ids=()), code, when),
            denies=denies,
        )
    if not code and not rows:
        # A deleted card is about no request. Another message may be about any open request, so it is never certain,
        # even if only one is open.
        return (
            Target((), certain=False)
            if action.token
            else dataclasses.replace(await _open(deliveries, channel, person, when), certain=False)
        )
    if not code:
        certain = len(rows) == 1 and rows[0].kind != "digest"
        from_others_card = action.verdict is None and any(row.person != person.id for row in rows)
        return Target(_list_shown(rows), certain=certain, from_others_card=from_others_card)
    agreeing = [row for row in rows if row.request.code == code]
    if agreeing:
        return _one_of(_list_shown(agreeing))
    coded = await _by_code(deliveries, codes, channel, person, code, when, denies=denies)
    # If the code is not the card's, the meaning is uncertain. A list has no code, so the written code counts.
    of_one = (bool(rows) and rows[0].kind != "digest") or bool(own)
    if not of_one or any(each.request.code == code for each in own):
        return coded
    return Target((*_list_shown(rows), *own, *coded.asked), certain=False)


async def open_requests(
    deliveries: DeliveryQueue, channel: Channel, person: Person, when: MessageTime
) -> Sequence[ApprovalRequest]:
    """Return the requests whose cards to a person were out at any time from a message's writing to its arrival."""
    return [row.request for row in await _out(deliveries, channel, person, when)]


async def _find_named(
    deliveries: DeliveryQueue, channel: Channel, person: Person, action: InboundAction
) -> list[DeliveryRow]:
    """Find cards by our token, else by the vendor's id; the person's own ones if any."""
    row = await deliveries.by_token(action.token) if action.token else None
    # A room's card shows no arguments, so it must decide nothing.
    if row is not None and row.kind == "room":
        return []
    # A token counts only on the channel that sent it. On another one it is a copy and names no card.
    if action.token and (row is None or row.channel != channel.name):
        return []
    if row is not None and row.kind != "digest":
        cards = [row]
    else:
        cards = await deliveries.by_vendor(channel.name, action.vendor_ids if row is None else [row.vendor_id])
        # Only the open cards of a list still count.
        cards = [each for each in cards if each.kind == "ask" or (each.kind == "digest" and each.ended_at is None)]
    # Do not even ask an author about another tenant's card, although its token is right.
    here = [each for each in cards if each.tenant == person.tenant]
    return [each for each in here if each.person == person.id] or here


async def _asked_by(
    deliveries: DeliveryQueue, codes: CodeLookup, person: Person, subjects: Sequence[MessageSubject]
) -> tuple[AskedRevision, ...]:
    """Return the requests in the revisions of that time."""
    revisions: list[AskedRevision] = []
    for subject in subjects:
        rows = [row for row in await deliveries.of_request(subject.approval) if row.person == person.id]
        requests = [row.request for row in sorted(rows, key=lambda row: row.revision == subject.revision)]
        requests = requests or [
            each for each in await codes.with_code(person, subject.code) if each.id == subject.approval
        ]
        if requests:
            shown = (subject.revision, subject.question_hash, subject.whole, subject.thread)
            revisions.append(AskedRevision(requests[-1], *shown))
    return tuple(revisions)


async def _open(deliveries: DeliveryQueue, channel: Channel, person: Person, when: MessageTime) -> Target:
    """Find the requests that waited for a person on this channel when the person wrote.

    A list, and a card that is still being sent, are uncertain: the person may not have read it.
    """
    rows = await _out(deliveries, channel, person, when)
    newest = {(row.approval, row.revision): row for row in sorted(rows, key=_version)}
    still = [
        row
        for row in rows
        if row.ended_at is None
        or row.ended_at > when.arrived
        # The card in its place was not sent yet.
        or (row.replaced and newest[row.approval, row.revision] is row)
    ]
    if when.said is None:
        return Target(_list_shown(still), certain=False, doubt="untimed")
    read = [row for row in rows if _sent_by(row, when.said, when)]
    later = [row for row in still if row not in read]
    if not read:
        return Target(_list_shown(later), certain=False, doubt="before" if later else "")
    alone = len(read) == 1 and read[0].kind != "digest" and read[0].sent_at is not None
    # The time of writing only removes candidates: an answer that is ambiguous at its arrival stays ambiguous, and an
    # ended request stays ended.
    over = alone and read[0] not in still
    shown = read if over else [row for row in (*read, *later) if row in still or not still]
    return Target(_list_shown(shown), certain=alone and (over or not later))


async def _by_code(
    deliveries: DeliveryQueue,
    codes: CodeLookup,
    channel: Channel,
    person: Person,
    code: str,
    when: MessageTime,
    *,
    denies: bool,
) -> Target:
    """Find the request with `code`, in the revision open when the person wrote, or at the arrival of a denial."""
    at = when.arrived if denies or when.said is None else when.said
    doubt: Doubt = "untimed" if when.said is None and not denies else ""
    out = await _out(deliveries, channel, person, MessageTime(when.arrived, at))
    rows = [row for row in out if row.sent_at is not None and row.request.code == code and _sent_by(row, at, when)]
    if rows:
        # Allow the slack only if no revision had surely been sent by then.
        sure = [row for row in rows if row.tried_at is not None and row.tried_at <= at]
        newest_last = sorted(sure or rows, key=_version, reverse=not sure)
        target = _one_of(_list_shown({row.approval: row for row in newest_last}.values()))
        return dataclasses.replace(target, certain=target.certain and not doubt, doubt=doubt)
    coded = await codes.with_code(person, code)
    known = [each for each in coded if each.opened_at is None or each.opened_at <= at + SLACK]
    shown = [await _revision_last_sent(deliveries, person, each, at, when) for each in known or coded]
    if coded and not known:
        return Target(tuple(shown), certain=False, doubt="before")
    target = _one_of(shown)
    return dataclasses.replace(target, certain=target.certain and not doubt, doubt=doubt)


def _sent_by(row: DeliveryRow, moment: datetime, when: MessageTime) -> bool:
    """Return whether the first attempt to send a card had begun by `moment`, and surely before the message arrived."""
    return row.tried_at is not None and row.tried_at <= min(moment + SLACK, when.arrived)


async def _out(deliveries: DeliveryQueue, channel: Channel, person: Person, when: MessageTime) -> list[DeliveryRow]:
    cards: dict[str, DeliveryRow] = {}
    for address in person.identities.get(channel.identity, ()):
        for row in await deliveries.list_out(channel.name, address, when.said or when.arrived, when.arrived):
            # The same address may be another person in another tenant.
            if (row.tenant, row.person) == (person.tenant, person.id):
                cards[row.token] = row
    return list(cards.values())


async def _revision_last_sent(
    deliveries: DeliveryQueue, person: Person, request: ApprovalRequest, at: datetime, when: MessageTime
) -> AskedRevision:
    """Return a request in the revision of the newest card sent to this person by `at`.

    Without any card, an answer that names no revision means the first one, and the person saw none of its values: the
    code may come from a room or from a colleague.
    """
    every = await deliveries.of_request(request.id, replaced=True)
    rows = [row for row in every if row.person == person.id]
    rows = [row for row in rows if row.sent_at is not None and _sent_by(row, at, when)]
    if rows:
        return revision_shown(max(rows, key=lambda row: (*_version(row), revision_shown(row).whole)))
    shown = request.question_hash if request.revision == 1 else UNKNOWN
    return AskedRevision(request, 1, shown, whole=False)


def _version(row: DeliveryRow) -> tuple[int, int]:
    return row.revision, answers_in(row.request.messages)


def _list_shown(rows: Iterable[DeliveryRow]) -> tuple[AskedRevision, ...]:
    return tuple(revision_shown(row) for row in rows)


def _one_of(asked: Sequence[AskedRevision]) -> Target:
    return Target(tuple(asked), certain=len(asked) == 1)
