"""Records that turns ended, as the server tells: a turn that comes to its ordinary end writes nothing more itself."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from temporalio.service import RPCError

from signoff.approvals.audit_events import turn_end_entry
from signoff.audit.event_sources import EventSources
from signoff.audit.log import TURNS_KEYS, AuditLog
from signoff.audit.record import moment_text
from signoff.contracts.audit import AuditEntry
from signoff.contracts.list_rows import TurnRow
from signoff.engine.turn_list import closed_turns
from signoff.gateway.deps import GatewayDeps

SOURCE: Final = "turn-ends"
OVERLAP: Final = timedelta(seconds=10)
"""How far back a look goes: the server lists what ended a moment later."""
LONG_OVERLAP: Final = timedelta(minutes=10)
"""How far back the first look goes, and one now and then: a busy server's list may be minutes behind."""
LONG_EACH: Final = 60
"""Every so many looks goes as far back as the first."""
_BATCH: Final = 200
_SAID: Final = f"{TURNS_KEYS}turn/ended"


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
        newest = min(await self._sources.read(SOURCE, now), now)
        back = OVERLAP if self._looks % LONG_EACH else LONG_OVERLAP
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
        self._seen = {run: at for run, at in self._seen.items() if at >= last - 2 * LONG_OVERLAP}
        if last > newest:
            await self._sources.advance(SOURCE, min(last, now))
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
