"""Queues notices in the table of cards, apart from them: no answer finds a notice.

A person has one row for each channel and event. A notice that has no channel yet is an open notice: the planner gives
it its recipients once its moment has come.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, TextClause, case, func, select, update

from signoff.approvals.notifications import Notice, notice_topic
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import TurnKey
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.store.claim_conditions import insert_new
from signoff.store.delivery_queue import KEY, delivery_token, name_try
from signoff.store.leases import LeaseQueue, claim_readable, clip_text, in_seconds, readable
from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.store import Also, Store
from signoff.store.tables import DELIVERIES, TICKETS, TO_SEND, StoreClock, millis_from_time, time_from_millis

_MARK: Final = "!"
"""Begins the channel of a notice. No channel's name contains it."""
_OPEN: Final = (TO_SEND, DELIVERIES.c.channel == _MARK)
"""The conditions of an open notice, which an index contains. No sender claims it: it has no channel."""
_KEPT_OPEN: Final = timedelta(days=1)
"""How long an open notice is kept, for a call from the end of its approval."""
_QUEUE: Final = LeaseQueue(DELIVERIES, TO_SEND, share="tenant", of=("channel",))
_TRYING: Final = "trying"
"""The code of an attempt without a result. A row that is claimed with it lost its sender."""
_UNKNOWN: Final = "unknown"
"""The code of such a row."""
_SIMULTANEOUS: Final = timedelta(hours=1)
"""Channels that are due within this time are due at once. A further channel is due much later."""
_CODE_CHARS: Final = 100
_SHOWN_CHARS: Final = 500
_OPEN_AT_ONCE: Final = 200


class NewNotice(FrozenModel):
    """A notice to send."""

    notice: Notice
    tenant: str
    person: str
    channel: str
    """The channel's name in the manifest."""
    address: str
    """The recipient's address on the channel."""
    due_at: datetime | None = None
    """The time to send it, in UTC. `None` sends it at once."""


class NoticeRow(FrozenModel):
    """A notice in the queue."""

    token: str
    tenant: str
    person: str
    """The recipient's id. "" for an open notice about a request."""
    channel: str
    """The channel's name in the manifest. "" for an open notice."""
    address: str
    attempts: int
    """The number of claims."""
    created_at: datetime
    """The time of planning, in UTC."""
    notice: Notice


class FinishedCall(NamedTuple):
    """An approved call with an outcome."""

    row: NoticeRow
    """Its open notice."""
    ticket: str
    nonce: str
    """The nonce of the ticket's turn."""
    outcome: CallOutcome
    at: datetime


class Notices:
    """Plans, claims and settles the notices in a store. All methods raise `StoreUnavailable`.

    For each tenant, claims stay within its `limits`, which cards share.
    """

    def __init__(self, store: Store, limits: TenantLimits = NO_LIMITS) -> None:
        self._store = store
        self._limit = DeliveryLimit("card", limits, name_try) if limits.limit_deliveries else None

    async def plan(self, rows: Sequence[NewNotice], settled: str = "", *, ended: str = "") -> int:
        """Existing notices do not change. Return the number of new ones.

        `settled` is the token of the open notice that these rows replace. `ended` is an approval that has ended: its
        unsent notices of waiting are dropped.
        """
        key = await self._store.secret_key(KEY)
        values = sorted((_values(key, row) for row in rows), key=lambda row: str(row["token"]))

        def write(connection: Connection) -> int:
            new = sum(insert_new(connection, DELIVERIES, row) for row in values)
            if settled:
                _close(connection, DELIVERIES.c.token == settled)
            if ended:
                outdated = (DELIVERIES.c.approval == notice_topic(ended, "waiting"), DELIVERIES.c.state == "planned")
                _close(connection, *outdated, DELIVERIES.c.code != _TRYING, state="dropped")
            return new

        return await self._store.run(write)

    async def follow(self, notice: Notice, request: ApprovalRequest) -> int:
        """Follow an approved call until it has an outcome, once. Return 1 for a new row."""
        key = await self._store.secret_key(KEY)
        turn = TurnKey(request.tenant, request.session, request.turn)
        # The join with tickets needs the turn and the call. An open notice has neither an address nor a vendor's id.
        until = notice.at + timedelta(seconds=request.grant_ttl) + _KEPT_OPEN
        values = _open_values(key, notice, request.tenant, "")
        values |= {"address": turn.workflow_id, "vendor_id": request.call, "due_at": millis_from_time(until)}
        return await self._store.run(lambda connection: int(insert_new(connection, DELIVERIES, values)))

    async def open_writer(self, notice: Notice, tenant: str, person: str) -> Also:
        """Return the write of an open notice for a person's channels, for another transaction."""
        values = _open_values(await self._store.secret_key(KEY), notice, tenant, person)
        return lambda connection: insert_new(connection, DELIVERIES, values)

    async def list_finished(self) -> list[FinishedCall]:
        """Return the followed calls whose tickets have an outcome."""
        # A subquery: the condition of an open notice has names that tickets have, too.
        followed = select(DELIVERIES).where(*_OPEN, DELIVERIES.c.claimed_until <= StoreClock()).subquery()
        same = (TICKETS.c.workflow == followed.c.address) & (TICKETS.c.call == followed.c.vendor_id)
        query = (
            select(followed, TICKETS.c.key, TICKETS.c.nonce, TICKETS.c.outcome, TICKETS.c.finished_at)
            .join(TICKETS, same)
            .where(TICKETS.c.state == "done", TICKETS.c.outcome.is_not(None))
            .limit(_OPEN_AT_ONCE)
        )
        return await self._store.read(lambda connection: readable(connection.execute(query), _finished))

    async def list_unrouted(self) -> list[NoticeRow]:
        """Return the open notices for all channels of a person."""
        query = select(DELIVERIES).where(*_OPEN, DELIVERIES.c.address == "").limit(_OPEN_AT_ONCE)
        return await self._store.read(lambda connection: readable(connection.execute(query), _row))

    async def drop_old(self) -> int:
        """Stop following calls that have not run in time. Return their number."""
        return await self._store.run(
            lambda connection: _close(connection, *_OPEN, DELIVERIES.c.due_at <= StoreClock(), state="dropped")
        )

    async def of_request(self, approval: str) -> list[NoticeRow]:
        """Return the notices about a request, also open and settled ones, in order of planning."""
        topics = [notice_topic(approval, event) for event in ("waiting", "decided", "ran")]
        query = select(DELIVERIES).where(DELIVERIES.c.approval.in_(topics))
        query = query.order_by(DELIVERIES.c.created_at, DELIVERIES.c.token)
        return await self._store.read(lambda connection: readable(connection.execute(query), _row))

    async def claim_due(self, limit: int, channel: str) -> list[NoticeRow]:
        """Claim the due notices of one channel, longest due first."""
        of = {"channel": _MARK + channel}
        return await self._store.run(
            lambda connection: claim_readable(connection, _QUEUE, of, limit=limit, read=_row, within=self._limit)
        )

    async def begin(self, token: str) -> bool:
        """Record that an attempt begins. Return whether it may.

        A notice is never sent again if its earlier sender ended without a result: the vendor may have it. Such a
        notice fails, and its person's later channels are dropped.
        """
        ours = (DELIVERIES.c.token == token, DELIVERIES.c.state == "planned")
        cut = DELIVERIES.c.code == _TRYING
        values = {
            "state": case((cut, "failed"), else_=DELIVERIES.c.state),
            "ended_at": case((cut, StoreClock()), else_=DELIVERIES.c.ended_at),
            "code": case((cut, _UNKNOWN), else_=_TRYING),
            "tried_at": func.coalesce(DELIVERIES.c.tried_at, StoreClock()),
            "changed_at": StoreClock(),
        }
        begins = update(DELIVERIES).where(*ours).values(values).returning(DELIVERIES.c.code)

        def write(connection: Connection) -> bool:
            code = connection.execute(begins).scalar()
            if code == _UNKNOWN:
                _drop_later(connection, token)
            return code == _TRYING

        return await self._store.run(write)

    async def release(self, token: str, seconds: float = 0.0) -> None:
        """Give back a claim without an attempt, or put a row aside for some seconds."""
        until = in_seconds(seconds) if seconds else 0
        back = update(DELIVERIES).where(DELIVERIES.c.token == token).values(claimed_until=until)
        await self._store.run(lambda connection: connection.execute(back).rowcount)

    async def record_sent(self, token: str) -> None:
        """Drop the person's later channels."""
        await self._store.run(lambda connection: _record_sent(connection, token))

    async def record_failure(self, token: str, code: str, message: str, *, again_after: float | None) -> None:
        """The notice is due again in `again_after` seconds. `None`: never, and the person's next channel is due now."""
        words = {"code": clip_text(code, _CODE_CHARS) or "error", "message": clip_text(message, _SHOWN_CHARS)}
        ours = (DELIVERIES.c.token == token, DELIVERIES.c.state == "planned")

        def write(connection: Connection) -> None:
            if again_after is not None:
                again = {**words, "due_at": in_seconds(again_after), "claimed_until": 0, "changed_at": StoreClock()}
                connection.execute(update(DELIVERIES).where(*ours).values(again))
                return
            _close(connection, *ours, state="failed", **words)
            following = connection.scalar(_select_next(token))
            if following is not None:
                soon = update(DELIVERIES).where(DELIVERIES.c.token == following, DELIVERIES.c.due_at > StoreClock())
                connection.execute(soon.values(due_at=StoreClock()))

        await self._store.run(write)

    async def has_next(self, token: str) -> bool:
        """Return whether the person has a further channel that was not tried."""
        return await self._store.read(lambda connection: connection.scalar(_select_next(token)) is not None)

    async def drop(self, token: str) -> None:
        """Drop an unsent notice, and the person's later channels."""
        ours = (DELIVERIES.c.token == token, DELIVERIES.c.state == "planned")

        def write(connection: Connection) -> None:
            if _close(connection, *ours, state="dropped"):
                _drop_later(connection, token)

        await self._store.run(write)


_UNTRIED: Final = (DELIVERIES.c.state == "planned", DELIVERIES.c.tried_at.is_(None))


def _others(token: str) -> tuple[ColumnElement[bool], ...]:
    one = DELIVERIES.alias()
    same = [
        DELIVERIES.c[name] == select(one.c[name]).where(one.c.token == token).scalar_subquery()
        for name in ("approval", "revision", "person")
    ]
    return (*same, DELIVERIES.c.token != token, DELIVERIES.c.channel != _MARK)


def _select_next(token: str) -> Select[Any]:
    return select(DELIVERIES.c.token).where(*_others(token), *_UNTRIED).order_by(DELIVERIES.c.due_at).limit(1)


def _record_sent(connection: Connection, token: str) -> None:
    _close(connection, DELIVERIES.c.token == token, sent_at=StoreClock(), code="", message="")
    _drop_later(connection, token)


def _drop_later(connection: Connection, token: str) -> None:
    one = DELIVERIES.alias()
    due = select(one.c.due_at).where(one.c.token == token).scalar_subquery()
    # A channel that was due at the same time is one of several that the rules want, as for a passkey.
    later = DELIVERIES.c.due_at > due + _SIMULTANEOUS // timedelta(milliseconds=1)
    _close(connection, *_others(token), *_UNTRIED, later, state="dropped")


def _close(
    connection: Connection, *which: ColumnElement[bool] | TextClause, state: str = "closed", **values: Any
) -> int:
    ended = {"state": state, "ended_at": StoreClock(), "changed_at": StoreClock(), "claimed_until": 0, **values}
    return connection.execute(update(DELIVERIES).where(*which).values(ended)).rowcount


def _values(key: bytes, row: NewNotice) -> dict[str, Any]:
    due = {} if row.due_at is None else {"due_at": millis_from_time(row.due_at)}
    values = _base(key, row.notice, row.tenant, row.person, _MARK + row.channel)
    return values | {"address": row.address} | due


def _open_values(key: bytes, notice: Notice, tenant: str, person: str) -> dict[str, Any]:
    # Due much later, so that it is no backlog. Notices are due once they have a channel.
    return _base(key, notice, tenant, person, _MARK) | {"due_at": millis_from_time(notice.at + _KEPT_OPEN)}


def _base(key: bytes, notice: Notice, tenant: str, person: str, channel: str) -> dict[str, Any]:
    return {
        "token": delivery_token(key, notice.topic, notice.revision, person, channel),
        "tenant": tenant,
        "approval": notice.topic,
        "revision": notice.revision,
        "person": person,
        "channel": channel,
        "address": "",
        "state": "planned",
        "kind": notice.kind,
        "vendor_id": "",
        "handle": "{}",
        "code": "",
        "message": "",
        "attempts": 0,
        "claimed_until": 0,
        "request": notice.model_dump_json(),
    }


def _row(row: Row[Any]) -> NoticeRow:
    return NoticeRow(
        token=row.token,
        tenant=row.tenant,
        person=row.person,
        channel=row.channel.removeprefix(_MARK),
        address=row.address,
        attempts=row.attempts,
        created_at=time_from_millis(row.created_at),
        notice=Notice.model_validate_json(row.request),
    )


def _finished(row: Row[Any]) -> FinishedCall:
    outcome = CallOutcome.model_validate_json(row.outcome)
    return FinishedCall(_row(row), row.key, row.nonce, outcome, time_from_millis(row.finished_at))
