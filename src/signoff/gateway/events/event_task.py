"""Records what nobody else writes, numbers events while a gateway runs, and removes those that are too old."""

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
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.list_rows import TurnRow
from signoff.engine.turn_list import closed_turns
from signoff.gateway.deps import GatewayDeps
from signoff.gateway.vendors.channel_tasks import run_forever
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import ApprovalProgress, Questions

DEADLINES: Final = "deadlines"
GRACE: Final = timedelta(seconds=2)
"""How long after a deadline it is said to have passed: an answer that was in time may just be being written."""
_DEADLINE_OVERLAP: Final = timedelta(seconds=10)
"""How far back each look goes: what was written in a transaction that ended late has an earlier time."""
_PAGE: Final = 500

_TURN_ENDS: Final = "turn-ends"
_END_OVERLAP: Final = timedelta(seconds=10)
"""How far back a look goes: the server lists what ended a moment later."""
LONG_END_OVERLAP: Final = timedelta(minutes=10)
"""How far back the first look goes, and one now and then: a busy server's list may be minutes behind."""
_LONG_EACH: Final = 60
"""Every so many looks goes as far back as the first."""
_BATCH: Final = 200
_SAID: Final = f"{TURNS_KEYS}turn/ended"

EVENT_SECONDS: Final = 5.0
"""How long a record may wait until its event has a number, where nobody reads; who reads numbers at once."""
LOOK_SECONDS: Final = 2.0
"""How often it is looked what happened while nobody wrote."""
_REMOVAL_ROUNDS: Final = 720
"""Every so many rounds, each hour, old events are removed."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def record_progress(deps: GatewayDeps, *, every: float = LOOK_SECONDS) -> AsyncIterator[None]:
    """Records what happens to turns and requests while nobody writes, looking each `every` seconds until the block
    ends.
    """

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
    """Numbers events each `every` seconds, and keeps them and what is owed of them for `days` days.

    It ends with the block.

    A store that is away is tried again, and never ends the block.
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
    """Follows the server's list of turns that ended. Several gateways may: each entry is kept once, by its key."""

    def __init__(self, deps: GatewayDeps) -> None:
        self._client = deps.client.temporal
        self._log = AuditLog(deps.store)
        self._sources = EventSources(deps.store)
        self._clock = deps.clock
        self._looks = 0
        self._seen: dict[str, datetime] = {}

    async def step(self) -> int:
        """Records the turns that ended since the last step; at the first, since the last of any gateway.

        Counts what was new. Raises `ServerUnavailable`, `StoreUnavailable`.
        """
        now = self._clock()
        # Never beyond now: a clock that was ahead once would hide all that ends until others catch up with it.
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
        # Only once all were read, as the list has no order: what fails above is read again.
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
        # A turn of another store has none here; nor has one that ended before it did anything.
        known = await self._log.find_streams(streams)
        own_ends = await self._log.find(_SAID, streams)
        ended = [row for row in batch if row.workflow_id in known and not _has_said(row, own_ends)]
        entries = [_entry(row) for row in ended if await self._is_over(row)]
        new = await self._log.append(entries)
        self._seen |= {row.run_id: row.closed_at for row in batch if row.closed_at is not None}
        return new

    async def _is_over(self, row: TurnRow) -> bool:
        """Returns whether the turn itself is: one that is reset goes on as another run."""
        if row.state not in ("terminated", "timed_out"):
            return True
        try:
            latest = await self._client.get_workflow_handle(row.workflow_id).describe()
        except RPCError:
            # Its history is gone already, so nothing goes on.
            return True
        return latest.run_id == row.run_id


def _has_said(row: TurnRow, own_ends: dict[str, str]) -> bool:
    """Returns whether this run of the turn has recorded its end itself, with what broke it off."""
    at = own_ends.get(row.workflow_id)
    return at is not None and (row.started_at is None or at >= moment_text(row.started_at))


def _entry(row: TurnRow) -> AuditEntry:
    if row.closed_at is None:
        raise RuntimeError(f"{row.workflow_id} has not ended")
    return turn_end_entry(row.tenant, row.session, row.turn, row.closed_at, state=row.state, run=row.run_id)


class DeadlineRecorder:
    """Follows the waiting requests of a store by its clock. Several gateways may: each entry is kept once, by its key.

    All of it stands in the store, so no turn can tell it anything, and none can keep it back.
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
        """Records what passed since the last step; at the first, since the last of any gateway. Counts what was new.

        Raises `StoreUnavailable`.
        """
        new = await self._catch_up() if self._since is None else 0
        touched, now = await self._questions.list_changed(self._since)
        looked_at = {each.approval for each in touched if self._seen.get(each.approval) != each}
        while self._due and self._due[0][0] <= now:
            looked_at.add(heapq.heappop(self._due)[1])
        for approval in sorted(looked_at):
            new += await self._record(approval)
        # Only once all were looked at: what fails above is looked at again.
        self._seen = {each.approval: each for each in touched}
        self._since = now - _DEADLINE_OVERLAP
        await self._sources.advance(DEADLINES, self._since)
        return new

    async def _catch_up(self) -> int:
        """Records what passed while no gateway ran; what waits still is looked at as all that waits."""
        now = self._clock()
        # Never from beyond now: a store's clock that was ahead once would hide what passed since.
        since = min(await self._sources.read(DEADLINES, now), now) - GRACE - _DEADLINE_OVERLAP
        new, after = 0, ""
        while page := await self._questions.list_overdue(since, _PAGE, after):
            for approval in page:
                new += await self._record(approval)
            after = page[-1]
        return new

    async def _record(self, approval: str) -> int:
        rows = await self._questions.read(approval)
        if rows is None:
            return 0
        request = rows.request(rows.latest, rows.now - GRACE)
        coming = deadlines.next_event(request)
        if coming is not None:
            heapq.heappush(self._due, (coming.at + GRACE, approval))
        return await self._log.append(_passed_entries(rows, request))


def _passed_entries(rows: ApprovalRows, request: ApprovalRequest) -> list[AuditEntry]:
    """Makes the entries of what time brought to the latest question of an approval; `request` is what became of it."""
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
