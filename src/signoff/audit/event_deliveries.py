"""Queues events for subscriptions: each event once, retried until delivered or given up."""

from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from signoff.audit.event_stream import DAY_MILLISECONDS, NEWEST, read_event
from signoff.contracts.audit import CloudEvent
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.ids import is_subscription_session, parse_approval_id, parse_workflow_id
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.claim_conditions import insert_or_hold
from signoff.store.leases import LeaseQueue, claim_readable, clip_text, in_seconds, readable
from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.store import Store
from signoff.store.tables import EVENT_DELIVERIES, EVENTS, SUBSCRIPTIONS, UNDONE, StoreClock

EVENTS_AT_ONCE: Final = 200
_QUEUE: Final = LeaseQueue(EVENT_DELIVERIES, UNDONE, share="tenant", of=("subscription",))
_KEY_HEX: Final = 40
_AFTER: Final = (
    select(EVENTS.c.number, EVENTS.c.private, EVENTS.c.body)
    .where(EVENTS.c.tenant == bindparam("of"), EVENTS.c.number > bindparam("after"), EVENTS.c.number <= bindparam("to"))
    .order_by(EVENTS.c.number)
    .limit(EVENTS_AT_ONCE)
)


class EventDelivery(FrozenModel):
    """An event still to be delivered to a subscription."""

    key: str
    subscription: str
    event: CloudEvent
    attempts: int
    code: str = ""
    """The result of the last attempt."""


class EventDeliveries:
    """Reads and writes the queue. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store, limits: TenantLimits = NO_LIMITS) -> None:
        self._store = store
        limited = limits.limit_deliveries
        self._limit = DeliveryLimit("event", limits, _try_name) if limited else None

    async def add(self, wanted: Subscription) -> int:
        """Return the number of events inspected. A new subscription starts with future events."""
        return await self._store.run(lambda connection: _add(connection, wanted))

    async def claim(self, wanted: Subscription, limit: int) -> list[EventDelivery]:
        """Claim due deliveries for a lease, within the tenant's limit.

        Leaves out another tenant's deliveries under the same name, and other subscriptions, which may be slow.
        """
        return await self._store.run(
            lambda connection: claim_readable(
                connection,
                _QUEUE,
                {"subscription": wanted.name},
                limit=limit,
                read=_delivery,
                only=wanted.tenant,
                within=self._limit,
            )
        )

    async def read(self, key: str) -> EventDelivery | None:
        """`None` if the delivery is no longer pending."""
        query = select(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key, EVENT_DELIVERIES.c.state == "new")
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return next(iter(readable(rows, _delivery)), None)

    async def finish(self, key: str) -> None:
        await self._run(delete(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key))

    async def postpone(self, key: str, code: str, seconds: float, *, counts: bool = True) -> None:
        """Unless it `counts`, undo the count of this attempt."""
        due: dict[str, Any] = {"due_at": in_seconds(seconds), "claimed_until": 0, "code": clip_text(code, 100)}
        if not counts:
            due["attempts"] = EVENT_DELIVERIES.c.attempts - 1
        await self._run(update(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key).values(due))

    async def give_up(self, key: str, code: str) -> None:
        """Set a delivery aside until someone requests a retry."""
        dead = {"state": "dead", "claimed_until": 0, "code": clip_text(code, 100)}
        await self._run(update(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key).values(dead))

    async def list_given_up(self, tenant: str) -> list[EventDelivery]:
        """Oldest first."""
        query = (
            select(EVENT_DELIVERIES)
            .where(EVENT_DELIVERIES.c.state == "dead", EVENT_DELIVERIES.c.tenant == tenant)
            .order_by(EVENT_DELIVERIES.c.number, EVENT_DELIVERIES.c.subscription)
            .limit(500)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return readable(rows, _delivery)

    async def retry(self, tenant: str, subscription: str = "") -> int:
        """Return the number of deliveries to retry."""
        which = [EVENT_DELIVERIES.c.state == "dead", EVENT_DELIVERIES.c.tenant == tenant]
        if subscription:
            which.append(EVENT_DELIVERIES.c.subscription == subscription)
        again = {"state": "new", "attempts": 0, "due_at": in_seconds(0)}
        return await self._run(update(EVENT_DELIVERIES).where(*which).values(again))

    async def remove_old(self, days: int) -> int:
        """Delete deliveries last due more than `days` days ago: given up, or without a subscription.

        Return their number.
        """
        old = EVENT_DELIVERIES.c.due_at < StoreClock() - days * DAY_MILLISECONDS
        return await self._run(delete(EVENT_DELIVERIES).where(old))

    async def _run(self, statement: Any) -> int:
        return await self._store.run(lambda connection: connection.execute(statement).rowcount)


def is_for(wanted: Subscription, event: CloudEvent) -> bool:
    """Return whether a subscription gets an event.

    A specialist's events go only to its own actor. An actor gets no events of turns that an event started.
    """
    if wanted.of_actor_alone and event.actor != wanted.actor:
        return False
    # Depth 1: two actors that watch each other would otherwise start turns without end.
    if wanted.starts and _is_of_event_turn(event):
        return False
    return wanted.wants(event.type) and (not event.private or (bool(event.actor) and event.actor == wanted.actor))


def _is_of_event_turn(event: CloudEvent) -> bool:
    turn = parse_workflow_id(event.id.rpartition("/")[0])
    # A remembered answer has the stream of its tenant. Its event names the call that it was given for.
    approval = parse_approval_id(str(event.data.get("approval", "")))
    sessions = [*([turn.session] if turn else []), *([approval.turn.session] if approval else [])]
    return any(is_subscription_session(each) for each in sessions)


def _add(connection: Connection, wanted: Subscription) -> int:
    newest = connection.scalar(NEWEST, {"of": wanted.tenant}) or 0
    place = {"name": wanted.name, "tenant": wanted.tenant}
    # This locks the row, so that one gateway adds at a time. A new subscription starts at the newest event.
    held = insert_or_hold(SUBSCRIPTIONS, "number", connection.dialect.name).returning(SUBSCRIPTIONS.c.number)
    after = connection.execute(held, {**place, "number": newest}).scalar_one()
    rows = connection.execute(_AFTER, {"of": wanted.tenant, "after": after, "to": newest}).all()
    new_rows = [
        {
            "key": _key(wanted, event.number),
            "subscription": wanted.name,
            "tenant": wanted.tenant,
            "number": event.number,
            "body": event.model_dump_json(),
            "state": "new",
            "code": "",
            "attempts": 0,
            "claimed_until": 0,
        }
        for event in (read_event(row.number, row.private, row.body) for row in rows)
        if event is not None and is_for(wanted, event)
    ]
    if new_rows:
        connection.execute(insert(EVENT_DELIVERIES), new_rows)
    position = rows[-1].number if len(rows) == EVENTS_AT_ONCE else newest
    if position > after:
        at = (SUBSCRIPTIONS.c.name == wanted.name) & (SUBSCRIPTIONS.c.tenant == wanted.tenant)
        connection.execute(update(SUBSCRIPTIONS).where(at).values(number=position))
    return len(rows)


def _key(wanted: Subscription, number: int) -> str:
    """Return the key of a delivery: the same from every gateway, and sorted like the events."""
    return f"{number:020d}.{sha256_hex([wanted.name, wanted.tenant, number])[:_KEY_HEX]}"


def _try_name(row: Row[Any]) -> str:
    # Polling a handler every second is no new attempt: the number of attempts does not change.
    return f"{row.key}.{row.attempts}"


def _delivery(row: Row[Any]) -> EventDelivery:
    event = CloudEvent.model_validate_json(row.body)
    return EventDelivery(key=row.key, subscription=row.subscription, event=event, attempts=row.attempts, code=row.code)
