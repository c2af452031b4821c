"""Queues what subscriptions are owed of the events: each event once, tried again until it arrives or is given up."""

from typing import Any, Final

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update

from signoff.audit.event_stream import DAY_MILLISECONDS, NEWEST, read_event
from signoff.contracts.audit import CloudEvent
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.tenant_limits import NO_LIMITS, TenantLimits
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.store.claim_conditions import insert_or_hold
from signoff.store.leases import claim_readable, clip_text, in_seconds, readable
from signoff.store.limits.counted_acts import DeliveryLimit
from signoff.store.store import Store
from signoff.store.tables import EVENT_DELIVERIES, EVENTS, SUBSCRIPTIONS, StoreClock

EVENTS_AT_ONCE: Final = 200
_KEY_HEX: Final = 40
_AFTER: Final = (
    select(EVENTS.c.number, EVENTS.c.private, EVENTS.c.body)
    .where(EVENTS.c.tenant == bindparam("of"), EVENTS.c.number > bindparam("after"), EVENTS.c.number <= bindparam("to"))
    .order_by(EVENTS.c.number)
    .limit(EVENTS_AT_ONCE)
)


class EventDelivery(FrozenModel):
    """An event that a subscription is owed."""

    key: str
    """The row's own key."""
    subscription: str
    """The subscription's name."""
    event: CloudEvent
    """The event."""
    attempts: int
    """How often it was tried."""
    code: str = ""
    """What the last try came to."""


class EventDeliveries:
    """Reads and writes the queue in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store, limits: TenantLimits = NO_LIMITS) -> None:
        self._store = store
        limited = limits.limit_deliveries
        self._limit = DeliveryLimit("event", limits, EVENT_DELIVERIES.c.tenant, _try_name) if limited else None

    async def add(self, wanted: Subscription) -> int:
        """Adds the events that a subscription wants since the last time; a new one begins with what is to come.

        Returns how many events were looked at.
        """
        return await self._store.run(lambda connection: _add(connection, wanted))

    async def claim(self, wanted: Subscription, limit: int) -> list[EventDelivery]:
        """Claims what is due to a subscription, for as long as a lease lasts, and no more than its tenant has left.

        Nothing of another tenant that had a subscription of this name; and of no other one, which may be slow.
        """
        table = EVENT_DELIVERIES.c
        own = (table.state == "new", table.subscription == wanted.name, table.tenant == wanted.tenant)
        return await self._store.run(
            lambda connection: claim_readable(
                connection, EVENT_DELIVERIES, *own, limit=limit, read=_delivery, within=self._limit
            )
        )

    async def read(self, key: str) -> EventDelivery | None:
        """Returns the delivery of a key; None where nobody is owed it any more."""
        query = select(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key, EVENT_DELIVERIES.c.state == "new")
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return next(iter(readable(rows, _delivery)), None)

    async def finish(self, key: str) -> None:
        """Forgets what has arrived."""
        await self._run(delete(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key))

    async def postpone(self, key: str, code: str, seconds: float, *, counts: bool = True) -> None:
        """Has a delivery tried again after so many seconds; unless it `counts`, as if it had not been tried now."""
        due: dict[str, Any] = {"due_at": in_seconds(seconds), "claimed_until": 0, "code": clip_text(code, 100)}
        if not counts:
            due["attempts"] = EVENT_DELIVERIES.c.attempts - 1
        await self._run(update(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key).values(due))

    async def give_up(self, key: str, code: str) -> None:
        """Puts a delivery aside, until somebody has it tried again."""
        dead = {"state": "dead", "claimed_until": 0, "code": clip_text(code, 100)}
        await self._run(update(EVENT_DELIVERIES).where(EVENT_DELIVERIES.c.key == key).values(dead))

    async def list_given_up(self, tenant: str) -> list[EventDelivery]:
        """Returns the deliveries that were given up in a tenant, oldest first."""
        query = (
            select(EVENT_DELIVERIES)
            .where(EVENT_DELIVERIES.c.state == "dead", EVENT_DELIVERIES.c.tenant == tenant)
            .order_by(EVENT_DELIVERIES.c.number, EVENT_DELIVERIES.c.subscription)
            .limit(500)
        )
        rows = await self._store.read(lambda connection: connection.execute(query).all())
        return readable(rows, _delivery)

    async def retry(self, tenant: str, subscription: str = "") -> int:
        """Has what was given up in a tenant, or of one subscription of it, tried again; returns how many there were."""
        which = [EVENT_DELIVERIES.c.state == "dead", EVENT_DELIVERIES.c.tenant == tenant]
        if subscription:
            which.append(EVENT_DELIVERIES.c.subscription == subscription)
        again = {"state": "new", "attempts": 0, "due_at": in_seconds(0)}
        return await self._run(update(EVENT_DELIVERIES).where(*which).values(again))

    async def remove_old(self, days: int) -> int:
        """Removes what was last due more than `days` days ago, given up or of no subscription any more; counts it."""
        old = EVENT_DELIVERIES.c.due_at < StoreClock() - days * DAY_MILLISECONDS
        return await self._run(delete(EVENT_DELIVERIES).where(old))

    async def _run(self, statement: Any) -> int:
        return await self._store.run(lambda connection: connection.execute(statement).rowcount)


def is_for(wanted: Subscription, event: CloudEvent) -> bool:
    """Returns whether a subscription is sent an event; a specialist's only where it is its actor's own."""
    if wanted.of_actor_alone and event.actor != wanted.actor:
        return False
    return wanted.wants(event.type) and (not event.private or (bool(event.actor) and event.actor == wanted.actor))


def _add(connection: Connection, wanted: Subscription) -> int:
    newest = connection.scalar(NEWEST, {"of": wanted.tenant}) or 0
    place = {"name": wanted.name, "tenant": wanted.tenant}
    # Locks the row, so that of several gateways one adds at a time; a new one is made at the newest.
    held = insert_or_hold(SUBSCRIPTIONS, "number", connection.dialect.name).returning(SUBSCRIPTIONS.c.number)
    after = connection.execute(held, {**place, "number": newest}).scalar_one()
    rows = connection.execute(_AFTER, {"of": wanted.tenant, "after": after, "to": newest}).all()
    made = [
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
    if made:
        connection.execute(insert(EVENT_DELIVERIES), made)
    goes_on = rows[-1].number if len(rows) == EVENTS_AT_ONCE else newest
    if goes_on > after:
        at = (SUBSCRIPTIONS.c.name == wanted.name) & (SUBSCRIPTIONS.c.tenant == wanted.tenant)
        connection.execute(update(SUBSCRIPTIONS).where(at).values(number=goes_on))
    return len(rows)


def _key(wanted: Subscription, number: int) -> str:
    """Makes the key of what a subscription is owed: the same whoever adds it, and sorted like the events."""
    return f"{number:020d}.{sha256_hex([wanted.name, wanted.tenant, number])[:_KEY_HEX]}"


def _try_name(row: Row[Any]) -> str:
    # Whoever asks again how a handler does, each second, tries nothing anew: its attempt is the same.
    return f"{row.key}.{row.attempts}"


def _delivery(row: Row[Any]) -> EventDelivery:
    event = CloudEvent.model_validate_json(row.body)
    return EventDelivery(key=row.key, subscription=row.subscription, event=event, attempts=row.attempts, code=row.code)
