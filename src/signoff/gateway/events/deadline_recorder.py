"""Records reminders, escalations and deadlines of requests as they pass: turns do so with their next step."""

import heapq
from datetime import datetime, timedelta
from typing import Final

from signoff.approvals import audit_events, deadlines
from signoff.approvals.request_state import request_of
from signoff.audit.event_sources import EventSources
from signoff.audit.log import AuditLog
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.audit import AuditEntry
from signoff.gateway.deps import GatewayDeps
from signoff.store.questions.approval_rows import ApprovalRows
from signoff.store.questions.questions import ApprovalProgress, Questions

SOURCE: Final = "deadlines"
GRACE: Final = timedelta(seconds=2)
"""How long after a deadline it is said to have passed: an answer that was in time may just be being written."""
OVERLAP: Final = timedelta(seconds=10)
"""How far back each look goes: what was written in a transaction that ended late has an earlier time."""
_PAGE: Final = 500


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
        self._since = now - OVERLAP
        await self._sources.advance(SOURCE, self._since)
        return new

    async def _catch_up(self) -> int:
        """Records what passed while no gateway ran; what waits still is looked at as all that waits."""
        now = self._clock()
        # Never from beyond now: a store's clock that was ahead once would hide what passed since.
        since = min(await self._sources.read(SOURCE, now), now) - GRACE - OVERLAP
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
        return await self._log.append(passed_entries(rows, request))


def passed_entries(rows: ApprovalRows, request: ApprovalRequest) -> list[AuditEntry]:
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
