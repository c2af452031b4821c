"""Records ends of turns and deadlines, numbers events while a gateway runs, and removes old events."""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from temporalio.service import RPCError

from signoff.approvals import audit_events, deadlines
from signoff.approvals.audit_events import turn_end_entry
from signoff.approvals.request_state import request_of
from signoff.audit.event_deliveries import EventDeliveries
from signoff.audit.event_sources import EventSources
from signoff.audit.event_stream import EventStream
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.audit.record import moment_text
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.contracts.errors import NotFound, StoreUnavailable
from signoff.contracts.responses import TurnRow
from signoff.engine.turn_list import closed_turns
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.vendors.channel_tasks import run_forever
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import ApprovalProgress, OpenPlace, Questions

DEADLINES: Final = "deadlines"
GRACE: Final = timedelta(seconds=2)
"""Delay after a deadline before it is recorded: an answer in time may still be in a transaction."""
_DEADLINE_OVERLAP: Final = timedelta(seconds=10)
"""Overlap of successive looks: a transaction that commits late has an earlier time."""
_PAGE: Final = 500

_TURN_ENDS: Final = "turn-ends"
_END_OVERLAP: Final = timedelta(seconds=10)
"""Overlap of successive looks: the server lists an end a moment later."""
LONG_END_OVERLAP: Final = timedelta(minutes=10)
"""Overlap of the first look and of some later ones: a busy server's list may lag by minutes."""
_LONG_EACH: Final = 60
"""Number of looks between two with the long overlap."""
_BATCH: Final = 200
_SAID: Final = f"{TURNS_KEYS}turn/ended"

EVENT_SECONDS: Final = 5.0
"""Longest wait of an entry for its event number while there are no readers. Reading numbers events at once."""
LOOK_SECONDS: Final = 2.0
"""Seconds between looks for changes that no process has recorded."""
_REMOVAL_ROUNDS: Final = 720
"""Number of rounds between removals of old events: one hour."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def record_progress(deps: GatewayDeps, *, every: float = LOOK_SECONDS) -> AsyncIterator[None]:
    """Look each `every` seconds until the block ends."""

    async def follow(step: Callable[[], Awaitable[int]]) -> None:
        while True:
            await step()
            await asyncio.sleep(every)

    recorders = {"deadlines": DeadlineRecorder(deps).step, "ends of turns": TurnEndRecorder(deps).step}
    recording = [
        asyncio.create_task(run_forever(f"the recorder of {what}", partial(follow, step)))
        for what, step in recorders.items()
    ]
    try:
        yield
    finally:
        for each in recording:
            each.cancel()
        await asyncio.gather(*recording, return_exceptions=True)


@asynccontextmanager
async def keep_events(
    events: EventStream, deliveries: EventDeliveries, days: int, *, every: float = EVENT_SECONDS
) -> AsyncIterator[None]:
    """Number events each `every` seconds until the block ends.

    Remove events and deliveries after `days` days. An outage of the store never ends the block.
    """
    keeping = asyncio.create_task(_keep(events, deliveries, days, every))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def _keep(events: EventStream, deliveries: EventDeliveries, days: int, every: float) -> None:
    rounds = 0
    while True:
        try:
            await events.extend()
            if rounds % _REMOVAL_ROUNDS == 0:
                await events.remove_old(days)
                await deliveries.remove_old(days)
        except StoreUnavailable as error:
            _log.warning("no events were numbered: %s", error.message)
        rounds += 1
        await asyncio.sleep(every)


class TurnEndRecorder:
    """Follows the server's list of ended turns. Several gateways may: each entry has a key and is stored once."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._client = deps.client.temporal
        self._log = AuditLog(deps.store)
        self._sources = EventSources(deps.store)
        self._clock = deps.clock
        self._looks = 0
        self._seen: dict[str, datetime] = {}

    async def step(self) -> int:
        """The first step continues from the last of any gateway.

        Returns the number of new entries. Raises `ServerUnavailable`, `StoreUnavailable`.
        """
        now = self._clock()
        # Never in the future: a clock that was once ahead would hide all ends until the others catch up.
        newest = min(await self._sources.read(_TURN_ENDS, now), now)
        back = _END_OVERLAP if self._looks % _LONG_EACH else LONG_END_OVERLAP
        new, batch = 0, list[TurnRow]()
        async for row in closed_turns(self._client, newest - back):
            if row.closed_at is None or row.run_id in self._seen:
                continue
            batch.append(row)
            if len(batch) == _BATCH:
                new += await self._record(batch)
                batch = []
        new += await self._record(batch)
        # Only after all rows, as the list has no order: after a failure above, the rows are read again.
        self._looks += 1
        last = max(self._seen.values(), default=newest)
        self._seen = {run: at for run, at in self._seen.items() if at >= last - 2 * LONG_END_OVERLAP}
        if last > newest:
            await self._sources.advance(_TURN_ENDS, min(last, now))
        return new

    async def _record(self, batch: Sequence[TurnRow]) -> int:
        if not batch:
            return 0
        streams = [row.workflow_id for row in batch]
        # Turns of other stores have no stream here, and so have turns that ended before they did anything.
        known = await self._log.find_streams(streams)
        own_ends = await self._log.find(_SAID, streams)
        ended = [row for row in batch if row.workflow_id in known and not _has_said(row, own_ends)]
        entries = [_entry(row) for row in ended if await self._is_over(row)]
        new = await self._log.append(entries)
        self._seen |= {row.run_id: row.closed_at for row in batch if row.closed_at is not None}
        return new

    async def _is_over(self, row: TurnRow) -> bool:
        """Return whether the turn has ended, not only this run: a reset turn continues as another run."""
        if row.state not in ("terminated", "timed_out"):
            return True
        try:
            latest = await self._client.get_workflow_handle(row.workflow_id).describe()
        except RPCError:
            # The history has been removed, so the turn does not continue.
            return True
        return latest.run_id == row.run_id


def _has_said(row: TurnRow, own_ends: dict[str, str]) -> bool:
    """Considers this run of the turn alone."""
    at = own_ends.get(row.workflow_id)
    return at is not None and (row.started_at is None or at >= moment_text(row.started_at))


def _entry(row: TurnRow) -> AuditEntry:
    if row.closed_at is None:
        raise RuntimeError(f"{row.workflow_id} has not ended")
    return turn_end_entry(row.tenant, row.session, row.turn, row.closed_at, state=row.state, run=row.run_id)


class DeadlineRecorder:
    """Follows the pending requests of a store by its clock.

    Several gateways may: each entry is stored once. Reads only the store, so a turn can neither forge nor suppress an
    entry.
    """

    def __init__(self, deps: GatewayDeps) -> None:
        self._questions = Questions(deps.store)
        self._log = AuditLog(deps.store)
        self._sources = EventSources(deps.store)
        self._clock = deps.clock
        self._since: datetime | None = None
        self._seen: dict[str, ApprovalProgress] = {}
        self._due: list[tuple[datetime, str]] = []

    async def step(self) -> int:
        """Returns the number of new entries.

        The first step continues from the last of any gateway. Raises `StoreUnavailable`.
        """
        new = await self._catch_up() if self._since is None else 0
        touched, now = await self._questions.list_changed(self._since)
        looked_at = {each.approval for each in touched if self._seen.get(each.approval) != each}
        while self._due and self._due[0][0] <= now:
            looked_at.add(heapq.heappop(self._due)[1])
        for approval in sorted(looked_at):
            new += await self._record(approval)
        # Only after all of them: after a failure above, they are looked at again.
        self._seen = {each.approval: each for each in touched}
        self._since = now - _DEADLINE_OVERLAP
        await self._sources.advance(DEADLINES, self._since)
        return new

    async def _catch_up(self) -> int:
        """Covers the time without a gateway. Requests that still wait get the usual look."""
        now = self._clock()
        # Never in the future: a store's clock that was once ahead would hide later deadlines.
        since = min(await self._sources.read(DEADLINES, now), now) - GRACE - _DEADLINE_OVERLAP
        new, after = 0, OpenPlace(int(since.timestamp() * 1000), "")
        while page := await self._questions.list_overdue(after, _PAGE):
            for place in page:
                new += await self._record(place.approval)
            after = page[-1]
        return new

    async def _record(self, approval: str) -> int:
        try:
            rows = await self._questions.read(approval)
        except NotFound:
            rows = None
        if rows is None:
            return 0
        request = rows.request(rows.latest, rows.now - GRACE)
        coming = deadlines.next_event(request)
        if coming is not None:
            heapq.heappush(self._due, (coming.at + GRACE, approval))
        return await self._log.append(_passed_entries(rows, request))


def _passed_entries(rows: ApprovalRows, request: ApprovalRequest) -> list[AuditEntry]:
    """Covers the latest question. `request` is its current state."""
    if request.state == "timed_out":
        until = rows.now
    else:
        until = rows.now - GRACE if request.decided_at is None else request.decided_at
    passed = deadlines.list_events(request_of(rows.latest), until)
    entries = [
        audit_events.deadline_entry(after, due.what, due.at) for due, after in passed if after.state == "pending"
    ]
    if request.state == "timed_out" and request.decided_at is not None:
        entries.append(audit_events.ended_entry(request, request.decided_at))
    return entries
