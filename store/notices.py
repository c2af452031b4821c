"""What became of requests, written by turns and read by the courier: a queue that survives both."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, select, update

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.base import Shape
from signoff.contracts.steps import NoticeEvent
from signoff.store.leases import in_seconds, readable, take_readable
from signoff.store.schema import NOTICES, StoreClock
from signoff.store.store import Store
from signoff.store.terms import added, moment


class NoticeRow(Shape):
    """One notice. `key` is `<approval>:<revision>:<event>:<n>`; `attempts` counts the claims, this one included."""

    key: str
    tenant: str
    event: NoticeEvent
    request: ApprovalRequest
    created_at: datetime
    attempts: int
    done_at: datetime | None = None


class Notices:
    """The notices in a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, key: str, tenant: str, event: NoticeEvent, request: ApprovalRequest) -> bool:
        """Keep a notice, once for each key; whether it is new."""
        values = {
            "key": key,
            "tenant": tenant,
            "event": event,
            "body": request.model_dump_json(),
            "claimed_until": 0,
            "attempts": 0,
        }
        return await self._store.run(lambda connection: added(connection, NOTICES, values))

    async def claim(self, limit: int) -> list[NoticeRow]:
        """At most `limit` due notices, the oldest first, left to the caller for a minute.

        Those that this version cannot read are put off for an hour.
        """
        waiting = NOTICES.c.done_at.is_(None)
        return await self._store.run(
            lambda connection: take_readable(connection, NOTICES, waiting, limit=limit, read=_row)
        )

    async def done(self, key: str) -> None:
        """Nothing is left to do for this notice."""
        await self._set(key, done_at=StoreClock())

    async def later(self, key: str, seconds: float) -> None:
        """Give a claimed notice back, due in so many seconds."""
        await self._set(key, due_at=in_seconds(seconds), claimed_until=0)

    async def look(self, key: str) -> NoticeRow | None:
        """The notice `key`, done or not, or None: so one who plans cards learns that the request was closed since."""
        query = select(NOTICES).where(NOTICES.c.key == key)
        found = await self._store.run(lambda connection: readable(connection.execute(query), _row))
        return found[0] if found else None

    async def sweep(self, older_than: timedelta) -> int:
        """Forget what was done so long ago; how many notices that were."""
        old = delete(NOTICES).where(NOTICES.c.done_at < in_seconds(-older_than.total_seconds()))
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    async def _set(self, key: str, **values: Any) -> None:
        # A claimer whose minute was over may still report: what another has done meanwhile is not opened again.
        changing = update(NOTICES).where(NOTICES.c.key == key, NOTICES.c.done_at.is_(None)).values(**values)
        await self._store.run(lambda connection: connection.execute(changing).close())


def notice_key(request: ApprovalRequest, event: NoticeEvent, number: int = 1) -> str:
    """The key of a notice of `request`; `number` tells several of the same event apart."""
    return f"{request.id}:{request.revision}:{event}:{number}"


def _row(row: Row[Any]) -> NoticeRow:
    return NoticeRow(
        key=row.key,
        tenant=row.tenant,
        event=row.event,
        request=ApprovalRequest.model_validate_json(row.body),
        created_at=moment(row.created_at),
        attempts=row.attempts,
        done_at=None if row.done_at is None else moment(row.done_at),
    )
