"""Queues what channels receive: kept before the vendor gets its answer, and recognised for as long as it may be
repeated.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from sqlalchemy import Connection, Row, delete, select, update

from signoff.contracts.frozen_model import FrozenModel
from signoff.store.claim_conditions import insert_new
from signoff.store.leases import claim_rows, in_seconds
from signoff.store.store import Store
from signoff.store.tables import ARRIVALS, millis_from_time, time_from_millis

ArrivalKind = Literal["action", "status"]
ArrivalState = Literal["new", "done", "dropped"]
REPEATED: Final = timedelta(days=7)
"""Vendors try to deliver a message for so long."""
TOLD: Final = "told"
"""In the result of a message that decided nothing: a hash of it and of what it was about, or ""."""
_KEY_CHARS: Final = 200
_HASHED: Final = "sha256-"


class InboundItem(Protocol):
    """Something that a channel received, with a key of its own."""

    @property
    def key(self) -> str:
        """Returns a key that is unique within the channel, and the same whenever the vendor repeats the message."""
        ...

    def model_dump_json(self) -> str:
        """Writes all of it as JSON."""
        ...

    @property
    def author(self) -> str:
        """Return the author's identity on the channel; "" for a report of the vendor."""
        ...


class InboundRow(FrozenModel):
    """One message that came in by a channel."""

    key: str
    """The row's own key."""
    channel: str
    """The channel's name in the manifest."""
    kind: ArrivalKind
    """What kind of message it is."""
    body: str
    """JSON of what the channel received; "" once it is settled."""
    received_at: datetime
    """When it came in, by the store's clock, in UTC."""
    attempts: int
    """How often it was claimed."""
    state: ArrivalState = "new"
    """How far its processing has come."""
    about: dict[str, Any] | None = None
    """What was noted of it while it is not settled."""
    result: dict[str, Any] | None = None
    """What its processing led to."""
    speaker: str = ""
    """A hash of channel and author; "" for a report of the vendor."""


class InboundQueue:
    """Reads and writes what came in to a store. All methods raise `StoreUnavailable` when the database fails."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, channel: str, actions: Sequence[InboundItem], statuses: Sequence[InboundItem]) -> int:
        """Keeps all of it or nothing; returns how much of it is new. Known messages stay as they are."""
        rows = [_new(channel, "action", each) for each in actions]
        rows += [_new(channel, "status", each) for each in statuses]
        # In one order, so that two who keep the same do not wait for each other.
        rows.sort(key=lambda row: str(row["key"]))
        return await self._store.run(lambda connection: sum(insert_new(connection, ARRIVALS, row) for row in rows))

    async def claim(self, limit: int, without: Collection[str] = ()) -> list[InboundRow]:
        """Claims at most `limit` arrivals that are due, the longest due first, for the caller alone for a minute.

        Takes none of the channels `without`.
        """
        which = (ARRIVALS.c.state == "new", ARRIVALS.c.channel.not_in(without))
        return await self._store.run(lambda connection: _rows(claim_rows(connection, ARRIVALS, *which, limit=limit)))

    async def note(self, key: str, about: Mapping[str, Any]) -> dict[str, Any]:
        """Notes what an arrival is about, once; returns the note that stands, which is the first."""
        noting = update(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new", ARRIVALS.c.result.is_(None))
        query = select(ARRIVALS).where(ARRIVALS.c.key == key)

        def write(connection: Connection) -> list[InboundRow]:
            connection.execute(noting.values(result=json.dumps(about)))
            return _rows(connection.execute(query))

        found = await self._store.run(write)
        return dict(about) if not found or found[0].about is None else found[0].about

    async def others_of_author(self, row: InboundRow) -> list[InboundRow]:
        """Return the other messages of the same author since `REPEATED` before `row` arrived, the earliest first.

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
        """Return the newest messages of the same author since then that decided nothing and got a reply."""
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
        """Give a claimed arrival back for `seconds`, as if it had never been claimed."""
        await self._set(key, due_at=in_seconds(seconds), claimed_until=0, attempts=0)

    async def finish(self, key: str, result: Mapping[str, Any], *, state: Literal["done", "dropped"] = "done") -> None:
        """Records the result of an arrival, and deletes its body.

        `dropped` means that it cannot be processed any more.
        """
        await self._set(key, state=state, body="", result=json.dumps(result))

    async def reschedule(self, key: str, seconds: float) -> None:
        """Gives a claimed arrival back, due in `seconds`."""
        await self._set(key, due_at=in_seconds(seconds), claimed_until=0)

    async def forget(self, key: str) -> None:
        """Deletes an arrival that is not settled; a replay of it is new again."""
        gone = delete(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new")
        await self._store.run(lambda connection: connection.execute(gone).close())

    async def read(self, channel: str, kind: ArrivalKind, key: str) -> InboundRow | None:
        """Returns the arrival that `channel` names by `key`, or None."""
        query = select(ARRIVALS).where(ARRIVALS.c.key == _key(channel, kind, key))
        found = await self._store.read(lambda connection: _rows(connection.execute(query)))
        return found[0] if found else None

    async def sweep(self, older_than: timedelta, *, what: str = "") -> int:
        """Deletes arrivals that came in before `older_than` and are done; returns how many.

        Replays of them are new again.

        With `what`, only those whose `result` says so first.
        """
        old = delete(ARRIVALS).where(
            ARRIVALS.c.received_at < in_seconds(-older_than.total_seconds()), ARRIVALS.c.state != "new"
        )
        if what:
            # `what` is written first in its JSON; without the closing brace the text is how all such results begin.
            old = old.where(ARRIVALS.c.result.startswith(json.dumps({"what": what})[:-1], autoescape=True))
        return await self._store.run(lambda connection: connection.execute(old).rowcount)

    async def _set(self, key: str, **values: Any) -> None:
        # What is settled stays so, whatever a claimer reports whose minute was over.
        changing = update(ARRIVALS).where(ARRIVALS.c.key == key, ARRIVALS.c.state == "new").values(**values)

        def write(connection: Connection) -> None:
            connection.execute(changing)

        await self._store.run(write)


def _new(channel: str, kind: ArrivalKind, arriving: InboundItem) -> dict[str, Any]:
    return {
        "key": _key(channel, kind, arriving.key),
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


def _key(channel: str, kind: ArrivalKind, key: str) -> str:
    # Vendors, and whoever writes a mail, name things as they like: what no database would take is named by its hash.
    plain = key.isascii() and key.isprintable() and len(key) <= _KEY_CHARS and not key.startswith(_HASHED)
    own = key if plain else _HASHED + hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return f"{channel}:{own}" if kind == "action" else f"{channel}/status:{own}"


def _rows(rows: Iterable[Row[Any]]) -> list[InboundRow]:
    return [_row(row) for row in rows]


def _row(row: Row[Any]) -> InboundRow:
    known = None if row.result is None else json.loads(row.result)
    return InboundRow(
        key=row.key,
        channel=row.channel,
        kind=row.kind,
        body=row.body,
        received_at=time_from_millis(row.received_at),
        speaker=row.speaker,
        attempts=row.attempts,
        state=row.state,
        about=known if row.state == "new" else None,
        result=None if row.state == "new" else known,
    )
