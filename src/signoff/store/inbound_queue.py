"""Queues the messages that channels receive.

A message is stored before the vendor gets its response, and recognised as long as the vendor may repeat it.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Row, delete, select, update

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.claim_conditions import insert_new
from signoff.store.leases import LeaseQueue, claim_rows, in_seconds
from signoff.store.store import Store
from signoff.store.tables import ARRIVALS, UNDONE, millis_from_time, time_from_millis

ArrivalKind = Literal["action", "status"]
ArrivalState = Literal["new", "done", "dropped"]
REPEATED: Final = timedelta(days=7)
"""How long vendors retry the delivery of a message."""
TOLD: Final = "told"
"""Key in the result of a message that decided nothing.

The value is a hash of the message and its subject, or "".
"""
_QUEUE: Final = LeaseQueue(ARRIVALS, UNDONE, share="channel")
_KEY_CHARS: Final = 200
_HASHED: Final = "sha256-"


class InboundItem(Protocol):
    """A received message or report, with its own key."""

    @property
    def key(self) -> str:
        """Return a key, unique within the channel and equal for every repetition by the vendor."""
        ...

    def model_dump_json(self) -> str: ...

    @property
    def author(self) -> str:
        """Return the author's identity on the channel, or "" for a report of the vendor."""
        ...


class InboundRow(FrozenModel):
    """One message received by a channel."""

    key: str
    channel: str
    """The channel's name in the manifest."""
    kind: ArrivalKind
    body: str
    """The received message as JSON, or "" once it is settled."""
    received_at: datetime
    """The time of receipt, by the store's clock, in UTC."""
    attempts: int
    """The number of claims."""
    state: ArrivalState = "new"
    """The progress of its processing."""
    about: dict[str, Any] | None = None
    """The note on the message, until it is settled."""
    result: dict[str, Any] | None = None
    speaker: str = ""
    """A hash of channel and author, or "" for a report of the vendor."""


class InboundQueue:
    """Reads and writes received messages. All methods raise `StoreUnavailable`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, channel: str, actions: Sequence[InboundItem], statuses: Sequence[InboundItem]) -> int:
        """Store all items or none. Return the number of new ones. Known messages do not change."""
        rows = [_new(channel, "action", each) for each in actions]
        rows += [_new(channel, "status", each) for each in statuses]
        # Insert in a fixed order, so that two writers of the same messages do not wait for each other.
        rows.sort(key=lambda row: str(row["key"]))
        return await self._store.run(lambda connection: sum(insert_new(connection, ARRIVALS, row) for row in rows))

    async def claim(self, limit: int, without: Collection[str] = ()) -> list[InboundRow]:
        """Claim due arrivals for one minute: the longest due of each channel, then the second.

        Skips the channels in `without`.
        """
        return await self._store.run(
            lambda connection: _rows(claim_rows(connection, _QUEUE, {}, limit=limit, without=without))
        )

    async def note(self, key: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """Record the subject of an arrival once. Return the first note."""
        noting = update(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new", ARRIVALS.c.result.is_(None))
        query = select(ARRIVALS).where(ARRIVALS.c.key == key)

        def write(connection: Connection) -> list[InboundRow]:
            connection.execute(noting.values(result=json.dumps(about)))
            return _rows(connection.execute(query))

        rows = await self._store.run(write)
        return dict(about) if not rows or rows[0].about is None else rows[0].about

    async def others_of_author(self, row: InboundRow) -> list[InboundRow]:
        """Oldest first, from `REPEATED` before `row` on.

        A vendor may deliver a message after one that was written later.
        """
        query = select(ARRIVALS).where(
            ARRIVALS.c.speaker == row.speaker,
            ARRIVALS.c.received_at >= millis_from_time(row.received_at - REPEATED),
            ARRIVALS.c.key != row.key,
        )
        if not row.speaker:
            return []
        ordered = query.order_by(ARRIVALS.c.received_at, ARRIVALS.c.key)
        return await self._store.read(lambda connection: _rows(connection.execute(ordered)))

    async def list_told(self, row: InboundRow, since: datetime, *, limit: int) -> list[InboundRow]:
        """Return the author's newest messages since `since` that decided nothing and got a reply."""
        query = (
            select(ARRIVALS)
            .where(
                ARRIVALS.c.speaker == row.speaker,
                ARRIVALS.c.received_at >= millis_from_time(since),
                ARRIVALS.c.state != "new",
                ARRIVALS.c.result.contains(f'"{TOLD}": ', autoescape=True),
                ARRIVALS.c.result.contains('"answered": true', autoescape=True),
            )
            .order_by(ARRIVALS.c.received_at.desc(), ARRIVALS.c.key)
            .limit(limit)
        )
        if not row.speaker:
            return []
        return await self._store.run(lambda connection: _rows(connection.execute(query)))

    async def hold(self, key: str, seconds: float) -> None:
        """Return a claimed arrival to the queue, as if it had never been claimed."""
        await self._set(key, due_at=in_seconds(seconds), claimed_until=0, attempts=0)

    async def finish(self, key: str, result: Mapping[str, Any], *, state: Literal["done", "dropped"] = "done") -> None:
        """Deletes the body. `dropped` means that the arrival can no longer be processed."""
        await self._set(key, state=state, body="", result=json.dumps(result))

    async def reschedule(self, key: str, seconds: float) -> None:
        """Return a claimed arrival to the queue, due in `seconds`."""
        await self._set(key, due_at=in_seconds(seconds), claimed_until=0)

    async def forget(self, key: str) -> None:
        """Delete an unsettled arrival. A repetition counts as new."""
        removal = delete(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new")
        await self._store.run(lambda connection: connection.execute(removal).close())

    async def read(self, channel: str, kind: ArrivalKind, key: str) -> InboundRow | None:
        query = select(ARRIVALS).where(ARRIVALS.c.key == arrival_key(channel, kind, key))
        rows = await self._store.read(lambda connection: _rows(connection.execute(query)))
        return rows[0] if rows else None

    async def sweep(self, older_than: timedelta, *, what: str = "") -> int:
        """Delete settled arrivals received before `older_than`.

        Repetitions count as new. With `what`, only arrivals whose `result` begins with it.
        """
        old = delete(ARRIVALS).where(
            ARRIVALS.c.received_at < in_seconds(-older_than.total_seconds()), ARRIVALS.c.state != "new"
        )
        if what:
            # `what` comes first in the result's JSON. Without the closing brace, this is the start of every such
            # result.
            old = old.where(ARRIVALS.c.result.startswith(json.dumps({"what": what})[:-1], autoescape=True))
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    async def _set(self, key: str, **values: Any) -> None:
        # A settled arrival stays settled, even if a claimer reports after its lease expired.
        changing = update(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new").values(**values)

        def write(connection: Connection) -> None:
            connection.execute(changing)

        await self._store.run(write)


def _new(channel: str, kind: ArrivalKind, arriving: InboundItem) -> dict[str, Any]:
    return {
        "key": arrival_key(channel, kind, arriving.key),
        "channel": channel,
        "kind": kind,
        "body": arriving.model_dump_json(),
        "speaker": hashlib.sha256(f"{channel}:{arriving.author}".encode(errors="surrogatepass")).hexdigest()
        if arriving.author
        else "",
        "claimed_until": 0,
        "attempts": 0,
        "state": "new",
    }


def arrival_key(channel: str, kind: ArrivalKind, key: str) -> str:
    """Return the key of the row of a message or report."""
    # Vendors and authors of emails choose keys freely. Replace a key that some database would reject by its hash.
    plain = key.isascii() and key.isprintable() and len(key) <= _KEY_CHARS and not key.startswith(_HASHED)
    own = key if plain else _HASHED + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return f"{channel}:{own}" if kind == "action" else f"{channel}/status:{own}"


def _rows(rows: Iterable[Row[Any]]) -> list[InboundRow]:
    return [_row(row) for row in rows]


def _row(row: Row[Any]) -> InboundRow:
    content = None if row.result is None else json.loads(row.result)
    return InboundRow(
        key=row.key,
        channel=row.channel,
        kind=row.kind,
        body=row.body,
        received_at=time_from_millis(row.received_at),
        speaker=row.speaker,
        attempts=row.attempts,
        state=row.state,
        about=content if row.state == "new" else None,
        result=None if row.state == "new" else content,
    )
