"""Queues the cards that channels send.

A person has one row on each channel, whatever is retried.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, NamedTuple, get_args

from pydantic import Field
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    String,
    and_,
    bindparam,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from signoff.approvals.notifications import approval_of_topic, notice_topic
from signoff.approvals.request_thread import QUESTIONS, answers_in
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.store.leases import LeaseQueue, claim_readable, clip_text, in_seconds, readable
from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.store import Store
from signoff.store.tables import DELIVERIES, TO_CLOSE, TO_SEND, StoreClock, millis_from_time, time_from_millis
from signoff.telemetry.counts import ProcessCounts

KEY: Final = "deliveries"
"""The name of the store's key that derives the tokens of cards and notices."""
DeliveryKind = Literal["ask", "digest", "room"]
"""`room`: a card without arguments for all members of a room. It decides nothing."""
_IS_CARD: Final = DELIVERIES.c.kind.in_(get_args(DeliveryKind))
"""Excludes notices, which are in the same table. Queries by approval or channel never match them."""
DeliveryState = Literal["planned", "sent", "delivered", "read", "failed", "closed", "dropped"]
"""Progress of a card. `dropped`: no longer needed, and never sent."""
Reported = Literal["sent", "delivered", "read", "failed", "unknown"]
_OUT: Final = ("sent", "delivered", "read")
_CLOSABLE: Final = ("planned", *_OUT)
# Serve tenants in turn: a few cards of one tenant do not wait for thousands of another.
_TO_SEND: Final = LeaseQueue(DELIVERIES, TO_SEND, share="tenant", of=("channel",))
_TO_CLOSE: Final = LeaseQueue(DELIVERIES, TO_CLOSE, share="tenant", of=("channel",))
_UNTRIED: Final = and_(DELIVERIES.c.state == "planned", DELIVERIES.c.tried_at.is_(None))
"""A card that the vendor cannot have. The vendor may have any other, acknowledged or not."""
_HELD_BACK_SECONDS: Final = 3_600.0
"""The wait of a tried card that is no longer needed, unless its request ends."""
_SENT: Final = (
    update(DELIVERIES)
    .where(
        DELIVERIES.c.token == bindparam("card"),
        # A vendor may answer after the card failed or was dropped. The card is out nevertheless and must be closed.
        or_(
            # No IN: SQLAlchemy expands it for one row only.
            *(DELIVERIES.c.state == state for state in ("planned", "failed", "dropped")),
            and_(
                DELIVERIES.c.state == "closed", DELIVERIES.c.vendor_id == "", bindparam("sent_as", type_=String) != ""
            ),
        ),
    )
    .values(
        state="sent",
        kind=bindparam("shown_as"),
        vendor_id=bindparam("sent_as"),
        handle=bindparam("given"),
        sent_at=StoreClock(),
        tried_at=func.coalesce(DELIVERIES.c.tried_at, StoreClock()),
        changed_at=StoreClock(),
        claimed_until=0,
        attempts=0,
        code="",
        message="",
    )
)
# Vendors report on one message in any order. Believe a failure only for a card that is not known to have arrived.
_BEFORE: Final[Mapping[str, tuple[str, ...]]] = {
    "sent": (),
    "delivered": ("sent",),
    "read": ("sent", "delivered"),
    "failed": ("sent",),
    "unknown": (),
}
"""Maps a reported state to the states that it may follow. No report moves a card back."""
_CODE_CHARS: Final = 100
_SHOWN_CHARS: Final = 500
_VENDOR_CHARS: Final = 500
_TOKEN_CHARS: Final = 26
_HANDLE_TEXTS: Final = 12
_ROOM: Final = "room:"
"""Begins the `person` of a room's card. No id of a person has a colon."""
_ROOM_CHARS: Final = 32


class NewDelivery(FrozenModel):
    """A card to send."""

    request: ApprovalRequest
    person: str
    channel: str
    """The channel's name in the manifest."""
    address: str
    """The recipient's address on the channel."""
    kind: DeliveryKind = "ask"
    """The purpose of the card."""
    due_at: datetime | None = None
    """The time to send it, in UTC. `None` sends it at once."""


class DeliveryRow(FrozenModel):
    """One card for one person on one channel. Times are by the store's clock, in UTC."""

    token: str
    """The card's name; see `delivery_token`."""
    tenant: str
    approval: str
    """Also of a replaced card, which is stored apart."""
    replaced: bool = False
    """Whether a newer card has taken its place."""
    revision: int
    person: str
    """The recipient's id, or `room_person` for a room."""
    channel: str
    """The channel's name in the manifest."""
    address: str
    """The recipient's address on the channel."""
    state: DeliveryState
    """The progress of the card."""
    kind: DeliveryKind
    """The purpose of the card."""
    vendor_id: str = ""
    """The vendor's id for the sent card, or ""."""
    handle: dict[str, Any] = Field(default_factory=dict)
    """The channel's data for changing the sent card."""
    code: str = ""
    """The code of the last failure reported by the vendor, or ""."""
    message: str = ""
    """The vendor's message for the last failure, or ""."""
    attempts: int = 0
    """The number of claims."""
    due_at: datetime
    """The time to send or retry the card."""
    created_at: datetime
    """The time of planning."""
    sent_at: datetime | None = None
    """The time at which the vendor accepted the card."""
    changed_at: datetime
    """The time of the row's last change."""
    ended_at: datetime | None = None
    """The end of the request. From then on `request` holds the end state."""
    closed_at: datetime | None = None
    """The time at which the sent card was changed to show the end."""
    tried_at: datetime | None = None
    """The start of the first attempt to send the card."""
    remind_at: datetime | None = None
    """The time since which a reminder is due, of whatever kind the card is."""
    request: ApprovalRequest
    """The request as last stored for the card."""


class SentDelivery(NamedTuple):
    """A card that the vendor accepted."""

    token: str
    vendor_id: str
    handle: Mapping[str, Any]
    kind: DeliveryKind = "ask"


class DeliveryQueue:
    """Plans, claims and settles the cards in a store.

    All methods raise `StoreUnavailable`. A claim lasts a minute and counts as an attempt. Skips cards that this version
    cannot read. For each tenant, claims for sending stay within its `limits`.
    """

    def __init__(self, store: Store, limits: TenantLimits = NO_LIMITS) -> None:
        self._store = store
        limited = limits.limit_deliveries
        self._limit = DeliveryLimit("card", limits, name_try) if limited else None

    @property
    def counts(self) -> ProcessCounts:
        return self._store.counts

    async def plan(self, rows: Sequence[NewDelivery]) -> int:
        """Existing cards do not change. Return the number of new ones."""
        key = await self._store.secret_key(KEY)
        # Insert in a fixed order, so that two planners of the same cards do not wait for each other.
        values = sorted((_new(key, row) for row in rows), key=lambda row: str(row["token"]))
        return await self._store.run(lambda connection: sum(_insert_card(connection, row) for row in values))

    async def claim_due(self, limit: int, channel: str) -> list[DeliveryRow]:
        """Claim planned cards of one channel, and reminders of sent ones.

        The longest due card of each tenant comes first, then the second of each, as far as its limit allows.
        """
        return await self._take(_TO_SEND, limit, channel, self._limit)

    async def record_try(self, tokens: Sequence[str]) -> frozenset[str]:
        """`tried_at` keeps the first attempt.

        Returns the tokens of cards that may be sent. The others were dropped, or their request ended.
        """
        wanted = (DELIVERIES.c.state.in_(_CLOSABLE), DELIVERIES.c.ended_at.is_(None))
        begins = (
            update(DELIVERIES)
            .where(DELIVERIES.c.token.in_(tokens), *wanted)
            .values(tried_at=func.coalesce(DELIVERIES.c.tried_at, StoreClock()), changed_at=StoreClock())
            .returning(DELIVERIES.c.token)
        )
        return await self._store.run(lambda connection: frozenset(connection.execute(begins).scalars()))

    async def record_sent(
        self, token: str, vendor_id: str, handle: Mapping[str, Any], *, kind: DeliveryKind = "ask"
    ) -> None:
        """See `record_all_sent`."""
        await self.record_all_sent([SentDelivery(token, vendor_id, handle, kind)])

    async def record_all_sent(self, cards: Sequence[SentDelivery]) -> None:
        """If a card's request has ended, the card is due to be closed.

        Includes a dropped card, and a card whose end was announced before its vendor id was known.
        """
        rows = [
            {
                "card": each.token,
                "shown_as": each.kind,
                "sent_as": clip_text(each.vendor_id, _VENDOR_CHARS),
                "given": json.dumps(each.handle),
            }
            # In a fixed order, so that two writers of the same cards do not wait for each other.
            for each in sorted(cards, key=lambda card: card.token)
        ]
        await self._store.run(lambda connection: connection.execute(_SENT, rows).close())

    async def add_to_handle(self, token: str, name: str, texts: Sequence[str]) -> None:
        """Add texts to a list in the handle of a sent card. The list keeps only the last ones."""
        if not texts:
            return
        ours = DELIVERIES.c.token == token

        def write(connection: Connection) -> None:
            stored = connection.execute(select(DELIVERIES.c.handle).where(ours).with_for_update()).scalar()
            if stored is None:
                return
            handle = json.loads(stored)
            every = dict.fromkeys((*handle.get(name, ()), *texts))
            handle[name] = list(every)[-_HANDLE_TEXTS:]
            connection.execute(update(DELIVERIES).where(ours).values(handle=json.dumps(handle)))

        await self._store.run(write)

    async def record_failure(
        self, token: str, code: str, message: str, *, again_after: float | None, closing: bool = False
    ) -> None:
        """The card is due again in `again_after` seconds, or never (`None`).

        If the request ended during the attempt to send, the card is due to be closed at once. A reminder that fails
        permanently does not change its card.
        """
        words = {"code": clip_text(code, _CODE_CHARS), "message": clip_text(message, _SHOWN_CHARS), "claimed_until": 0}
        ours = DELIVERIES.c.token == token
        if again_after is not None:
            later = in_seconds(again_after)
            is_over = DELIVERIES.c.ended_at.is_not(None)
            due_at = later if closing else case((is_over, StoreClock()), else_=later)
            await self._set(ours, **words, due_at=due_at)
            return
        await self._set(ours, DELIVERIES.c.state == "planned", **words, state="failed", attempts=0)
        await self._set(ours, DELIVERIES.c.remind_at.is_not(None), **words, remind_at=None)

    async def state(
        self, channel: str, vendor_id: str, state: Reported, code: str = "", message: str = ""
    ) -> DeliveryRow | None:
        """A report never moves a card back.

        Returns `None` if no card has that vendor id, which may just not be recorded yet.
        """
        changes: dict[str, Any] = {"changed_at": StoreClock()}
        if code or message:
            changes |= {"code": clip_text(code, _CODE_CHARS), "message": clip_text(message, _SHOWN_CHARS)}
        named = _match_vendor_ids(channel, [vendor_id])
        moving = update(DELIVERIES).where(named, DELIVERIES.c.state.in_(_BEFORE[state])).values(**changes, state=state)
        noting = update(DELIVERIES).where(named).values(**changes)

        def write(connection: Connection) -> list[DeliveryRow]:
            changed = connection.execute(moving).rowcount
            if not changed and state == "unknown":
                connection.execute(noting)
            return readable(connection.execute(select(DELIVERIES).where(named).order_by(DELIVERIES.c.token)), _row)

        cards = await self._store.run(write)
        return cards[0] if cards else None

    async def of_request(
        self, approval: str, revision: int | None = None, *, replaced: bool = False
    ) -> list[DeliveryRow]:
        """In order of planning, by default without `replaced` cards."""
        topics = [notice_topic(approval, str(number)) for number in range(QUESTIONS)] if replaced else []
        which: list[ColumnElement[bool]] = [DELIVERIES.c.approval.in_([approval, *topics])]
        if revision is not None:
            which.append(DELIVERIES.c.revision == revision)
        return await self._find(*which)

    async def find_read_elsewhere(self, tokens: Sequence[str]) -> frozenset[str]:
        """Return the tokens of those cards whose person has read the request on another channel."""
        other = DELIVERIES.alias()
        same = (other.c[name] == DELIVERIES.c[name] for name in ("approval", "revision", "person"))
        query = (
            select(DELIVERIES.c.token)
            .join(other, and_(*same))
            .where(DELIVERIES.c.token.in_(tokens), other.c.state == "read", other.c.ended_at.is_(None))
        )
        return (
            await self._store.read(lambda connection: frozenset(connection.scalars(query))) if tokens else frozenset()
        )

    async def by_token(self, token: str) -> DeliveryRow | None:
        # Keep one character more than a token has, so that a longer text does not match the token it starts with.
        cards = await self._find(DELIVERIES.c.token == clip_text(token, _TOKEN_CHARS + 1), _IS_CARD)
        return cards[0] if cards else None

    async def by_vendor(self, channel: str, vendor_ids: Sequence[str]) -> list[DeliveryRow]:
        """One message may have shown several requests."""
        return await self._find(_match_vendor_ids(channel, vendor_ids))

    async def list_out(self, channel: str, address: str, since: datetime, until: datetime) -> list[DeliveryRow]:
        """Return the cards that were out at this address at any time from `since` to `until`, by the store's clock.

        A card is out from its first attempt until its request ends or a newer card is tried. The vendor may have a card
        without `sent_at`, if its reply was lost.
        """
        newer = DELIVERIES.alias()
        is_latest = (
            select(newer.c.token)
            .where(
                DELIVERIES.c.approval.like(notice_topic("%", "_")),
                newer.c.approval == func.substr(DELIVERIES.c.approval, 1, func.length(DELIVERIES.c.approval) - 2),
                *(newer.c[name] == DELIVERIES.c[name] for name in ("revision", "person", "channel")),
                or_(newer.c.tried_at.is_(None), newer.c.tried_at > millis_from_time(until)),
                or_(newer.c.ended_at.is_(None), newer.c.ended_at > millis_from_time(since)),
            )
            .exists()
        )
        return await self._find(
            DELIVERIES.c.channel == channel,
            DELIVERIES.c.address == address,
            DELIVERIES.c.state.in_(("planned", *_OUT, "closed")),
            DELIVERIES.c.tried_at <= millis_from_time(until),
            or_(DELIVERIES.c.ended_at.is_(None), DELIVERIES.c.ended_at > millis_from_time(since), is_latest),
        )

    async def list_unfinished(self, limit: int, after: DeliveryRow | None = None) -> list[DeliveryRow]:
        """Return cards of requests that may still wait, oldest first. With `after`, only the cards that follow it."""
        order = (DELIVERIES.c.created_at, DELIVERIES.c.token)
        waiting = DELIVERIES.c.state.in_(("planned", *_OUT))
        query = select(DELIVERIES).where(waiting, DELIVERIES.c.ended_at.is_(None), _IS_CARD).order_by(*order)
        if after is not None:
            # Page by position instead of OFFSET: cards that end between two pages would cause others to be skipped.
            query = query.where(tuple_(*order) > tuple_(millis_from_time(after.created_at), after.token))
        return await self._store.read(lambda connection: readable(connection.execute(query.limit(limit)), _row))

    async def remind(self, request: ApprovalRequest) -> int:
        """Make all sent cards due again, once for each reminder.

        Return their number. All cards get the request's present state. A repeated or earlier reminder changes nothing.
        """
        return await self._renew(request, reminds=True)

    async def renew(self, request: ApprovalRequest) -> int:
        """Give the cards of `request` its new deadline and approvers. Return their number, out or planned."""
        return await self._renew(request, reminds=False)

    async def assign(self, request: ApprovalRequest) -> int:
        """Give the cards of `request` its hand-ons and added approvers, once. Return their number.

        The sent cards of the people who decide now are due again.
        """
        again = {"remind_at": StoreClock(), "due_at": StoreClock(), "claimed_until": 0, "attempts": 0}
        waiting = (*_of(request.id, request.revision), DELIVERIES.c.ended_at.is_(None))

        def write(connection: Connection) -> int:
            changed = 0
            rows = connection.execute(select(DELIVERIES).where(*waiting)).all()
            for row, had in readable(rows, _with_request):
                news = request.assignments[len(had.assignments) :]
                if not news:
                    continue
                due = row.state in _OUT and any(each.decision.to == row.person for each in news)
                now = replace(had, assignments=request.assignments, votes=request.votes)
                values = {"request": now.model_dump_json(), "changed_at": StoreClock(), **(again if due else {})}
                unchanged = (DELIVERIES.c.token == row.token, DELIVERIES.c.request == row.request, waiting[-1])
                changed += connection.execute(update(DELIVERIES).where(*unchanged).values(values)).rowcount
            return changed

        return await self._store.run(write)

    async def replace_old(self, request: ApprovalRequest, people: Collection[str]) -> int:
        """Replace those cards of `people` that lack an answer of the agent. Return their number.

        Each new card has its own token, so that an answer to the old one names what that one showed. The old one is
        due to be closed. The new one is due at once if the old one was out. A dropped card makes room for a new plan.
        """
        key = await self._store.secret_key(KEY)
        # In a fixed order, so that two writers of the same cards do not wait for each other.
        old = (
            select(DELIVERIES)
            .where(
                *(*_of(request.id, request.revision), DELIVERIES.c.ended_at.is_(None), DELIVERIES.c.kind != "room"),
                DELIVERIES.c.state.in_((*_CLOSABLE, "dropped")),
            )
            .order_by(DELIVERIES.c.token)
        )

        def write(connection: Connection) -> int:
            replaced = 0
            for row, had in readable(connection.execute(old).all(), _with_request):
                if row.person not in people or answers_in(had.messages) >= answers_in(request.messages):
                    continue
                values = {
                    "approval": notice_topic(request.id, str(answers_in(had.messages))),
                    "state": case((_UNTRIED, "dropped"), else_=DELIVERIES.c.state),
                    "claimed_until": case((_UNTRIED, 0), else_=DELIVERIES.c.claimed_until),
                    **{"ended_at": StoreClock(), "due_at": StoreClock(), "changed_at": StoreClock(), "attempts": 0},
                }
                ours = (DELIVERIES.c.token == row.token, DELIVERIES.c.ended_at.is_(None))
                # Another dispatcher may have been first.
                if not connection.execute(update(DELIVERIES).where(*ours).values(values)).rowcount:
                    continue
                if row.state == "dropped":
                    continue
                unsent = row.state == "planned" and row.tried_at is None
                new = NewDelivery(
                    request=request,
                    person=row.person,
                    channel=row.channel,
                    address=row.address,
                    due_at=time_from_millis(row.due_at) if unsent else None,
                )
                replaced += _insert_card(connection, _new(key, new))
            return replaced

        return await self._store.run(write)

    async def redraw(self, approval: str) -> int:
        """Make the cards of a request in rooms due to be drawn again. Return their number."""
        of = (DELIVERIES.c.approval == approval, DELIVERIES.c.kind == "room", DELIVERIES.c.ended_at.is_(None))
        # A card that is being sent may show the state of before. It is drawn again after that.
        unsent = DELIVERIES.c.state == "planned"
        return await self._set(
            *of,
            DELIVERIES.c.state.in_(_CLOSABLE),
            remind_at=StoreClock(),
            due_at=case((unsent, DELIVERIES.c.due_at), else_=StoreClock()),
            claimed_until=case((unsent, DELIVERIES.c.claimed_until), else_=0),
            attempts=0,
        )

    async def record_drawn(self, row: DeliveryRow, again_at: datetime | None) -> None:
        """Record that a room's card was drawn as of `row`. It is due again at `again_at`, or at the next change."""
        drawn = DELIVERIES.c.remind_at
        # A later change made it due again: keep that.
        unchanged = drawn.is_(None) if row.remind_at is None else drawn == millis_from_time(row.remind_at)
        later = None if again_at is None else millis_from_time(again_at)
        due = {} if later is None else {"due_at": later}
        await self._set(DELIVERIES.c.token == row.token, unchanged, remind_at=later, claimed_until=0, attempts=0, **due)

    async def record_reminder(self, token: str) -> None:
        """Record that the reminder was sent, or is no longer needed."""
        to_remind = (DELIVERIES.c.token == token, DELIVERIES.c.remind_at.is_not(None))
        await self._set(*to_remind, remind_at=None, claimed_until=0, attempts=0)

    async def end(self, approval: str, revision: int, request: ApprovalRequest) -> int:
        """Record the end given by `request`.

        Drop untried cards, make others due to be closed. The vendor may have any tried card, even without an
        acknowledgement.
        """
        state = case((_UNTRIED, "dropped"), else_=DELIVERIES.c.state)
        # A card or reminder being sent keeps its claim. It is closed afterwards, by the vendor's id if known.
        claimed = case((_UNTRIED, 0), else_=DELIVERIES.c.claimed_until)
        return await self._set(
            *_of(approval, revision),
            DELIVERIES.c.ended_at.is_(None),
            state=state,
            request=request.model_dump_json(),
            ended_at=StoreClock(),
            due_at=StoreClock(),
            claimed_until=claimed,
            attempts=0,
        )

    async def claim_to_close(self, limit: int, channel: str) -> list[DeliveryRow]:
        """Claim cards of one channel that are, or may be, out although their request has ended."""
        return await self._take(_TO_CLOSE, limit, channel)

    async def record_closed(self, token: str) -> None:
        """Record that the card shows the end of its request, or can no longer be changed."""
        await self._set(
            DELIVERIES.c.token == token,
            DELIVERIES.c.state.in_(_CLOSABLE),
            state="closed",
            closed_at=StoreClock(),
            claimed_until=0,
        )

    async def expedite(self, token: str) -> None:
        """Make an unsent card due now."""
        planned = (DELIVERIES.c.token == token, DELIVERIES.c.state == "planned", DELIVERIES.c.due_at > StoreClock())
        await self._set(*planned, due_at=StoreClock())

    async def take_off_list(self, row: NewDelivery) -> None:
        """Plan a card for a request that its person got only in a list. The list stays about its other requests."""
        due = StoreClock() if row.due_at is None else millis_from_time(row.due_at)
        await self._set(
            *_of(row.request.id, row.request.revision),
            DELIVERIES.c.person == row.person,
            DELIVERIES.c.channel == row.channel,
            DELIVERIES.c.kind == "digest",
            DELIVERIES.c.state.in_(_OUT),
            DELIVERIES.c.ended_at.is_(None),
            **{"kind": "ask", "state": "planned", "vendor_id": "", "handle": "{}", "due_at": due, "claimed_until": 0},
            **{"attempts": 0, "sent_at": None, "tried_at": None, "remind_at": None},
        )

    async def drop(self, token: str) -> None:
        """Drop an unsent card. If it was tried, hold it back instead: it may have to show the end."""
        ours = DELIVERIES.c.token == token
        await self._set(ours, _UNTRIED, state="dropped", claimed_until=0)
        planned = DELIVERIES.c.state == "planned"
        await self._set(ours, planned, due_at=in_seconds(_HELD_BACK_SECONDS))

    async def sweep(self, older_than: timedelta) -> int:
        """Delete finished cards that have not changed since `older_than`."""
        over = DELIVERIES.c.state.in_(("closed", "dropped", "failed"))
        old = delete(DELIVERIES).where(over, DELIVERIES.c.changed_at < in_seconds(-older_than.total_seconds()))
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    async def _renew(self, request: ApprovalRequest, *, reminds: bool) -> int:
        waiting = (*_of(request.id, request.revision), DELIVERIES.c.ended_at.is_(None))
        again = {"remind_at": StoreClock(), "due_at": StoreClock(), "claimed_until": 0, "attempts": 0}

        def write(connection: Connection) -> int:
            changed = 0
            rows = connection.execute(select(DELIVERIES).where(*waiting)).all()
            for row, had in readable(rows, _with_request):
                now = _newer(had, request, reminds=reminds)
                if now is had:
                    continue
                due = (reminds or row.kind == "room") and row.state in _OUT
                # Another reader of the same notice may have been first.
                unchanged = (DELIVERIES.c.token == row.token, DELIVERIES.c.request == row.request, waiting[-1])
                values = {"request": now.model_dump_json(), "changed_at": StoreClock(), **(again if due else {})}
                updates = connection.execute(update(DELIVERIES).where(*unchanged).values(values)).rowcount
                changed += updates if due or not reminds else 0
            return changed

        return await self._store.run(write)

    async def _take(
        self, queue: LeaseQueue, limit: int, channel: str, within: DeliveryLimit | None = None
    ) -> list[DeliveryRow]:
        of = {"channel": channel}
        return await self._store.run(
            lambda connection: claim_readable(connection, queue, of, limit=limit, read=_row, within=within)
        )

    async def _find(self, *which: ColumnElement[bool]) -> list[DeliveryRow]:
        query = select(DELIVERIES).where(*which).order_by(DELIVERIES.c.created_at, DELIVERIES.c.token)
        return await self._store.read(lambda connection: readable(connection.execute(query), _row))

    async def _set(self, *which: ColumnElement[bool], **values: Any) -> int:
        changing = update(DELIVERIES).where(*which).values(**values, changed_at=StoreClock())
        return await self._store.run(lambda connection: connection.execute(changing).rowcount)


def room_person(address: str) -> str:
    """Return the `person` of the card for the room at `address`."""
    return f"{_ROOM}{hashlib.sha256(address.encode()).hexdigest()[:_ROOM_CHARS]}"


def _insert_card(connection: Connection, row: Mapping[str, Any]) -> bool:
    # False for any card of the person on the channel, also one with more answers of the agent.
    return connection.execute(_build_card(connection.dialect.name), row).first() is not None


@cache
def _build_card(dialect: str) -> Any:
    adding = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(DELIVERIES)
    return adding.on_conflict_do_nothing().returning(DELIVERIES.c.token)


def delivery_token(key: bytes, approval: str, revision: int, person: str, channel: str) -> str:
    """The name is the same for every planner, and cannot be computed without the store's key."""
    content = f"{approval}|{revision}|{person}|{channel}".encode()
    # Use lower-case base32: email addresses that contain it may come back in any case.
    return base64.b32encode(hmac.digest(key, content, "sha256")).decode().lower()[:_TOKEN_CHARS]


def _newer(had: ApprovalRequest, update: ApprovalRequest, *, reminds: bool) -> ApprovalRequest:
    """Return `had` if the notice is outdated: notices may arrive out of order.

    Only a reminder counts as one, because an escalation may be read before the reminder that preceded it.
    """
    # An answer to the card approves only the messages that it showed.
    update = replace(update, messages=had.messages, thread=had.thread)
    if len(update.assignments) < len(had.assignments):
        update = replace(update, assignments=had.assignments)
    # A question moves the deadline without another step.
    step, had_step = _step(update), _step(had)
    if reminds and update.reminded > had.reminded:
        return update if step >= had_step else replace(had, reminded=update.reminded, votes=update.votes)
    if not reminds and step > had_step:
        return replace(update, reminded=had.reminded)
    return had


def _step(request: ApprovalRequest) -> tuple[int, float]:
    return request.escalated + request.extended, request.expires_at.timestamp() if request.expires_at else 0.0


def _of(approval: str, revision: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return DELIVERIES.c.approval == approval, DELIVERIES.c.revision == revision


def _match_vendor_ids(channel: str, vendor_ids: Sequence[str]) -> ColumnElement[bool]:
    # Ignore empty ids: every unsent card has one.
    names = {clip_text(each, _VENDOR_CHARS) for each in vendor_ids if each}
    return and_(DELIVERIES.c.channel == channel, DELIVERIES.c.vendor_id.in_(names))


def _new(key: bytes, row: NewDelivery) -> dict[str, Any]:
    request, told = row.request, answers_in(row.request.messages)
    topic = notice_topic(request.id, str(told)) if told else request.id
    return {
        "token": delivery_token(key, topic, request.revision, row.person, row.channel),
        "tenant": request.tenant,
        "approval": request.id,
        "revision": request.revision,
        "person": row.person,
        "channel": row.channel,
        "address": row.address,
        "state": "planned",
        "kind": row.kind,
        "vendor_id": "",
        "handle": "{}",
        "code": "",
        "message": "",
        "attempts": 0,
        "claimed_until": 0,
        "request": request.model_dump_json(),
        **({} if row.due_at is None else {"due_at": millis_from_time(row.due_at)}),
    }


def name_try(row: Row[Any]) -> str:
    """Return the name of an attempt under a tenant's limit."""
    # Attempts restart at 0 after sending, but no two leases end at the same moment.
    return f"{row.token}.{row.claimed_until}"


def _with_request(row: Row[Any]) -> tuple[Row[Any], ApprovalRequest]:
    return row, ApprovalRequest.model_validate_json(row.request)


def _row(row: Row[Any]) -> DeliveryRow:
    fields = dict(row._mapping)
    for name in ("due_at", "created_at", "sent_at", "changed_at", "ended_at", "closed_at", "remind_at", "tried_at"):
        fields[name] = None if fields[name] is None else time_from_millis(fields[name])
    fields["handle"] = json.loads(fields["handle"])
    fields["approval"] = approval_of_topic(row.approval)
    fields["replaced"] = fields["approval"] != row.approval
    fields["request"] = ApprovalRequest.model_validate_json(fields["request"])
    return DeliveryRow(**fields)
