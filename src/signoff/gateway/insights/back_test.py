"""Counts the present policies' verdicts on the newest calls. Keeps no argument."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from temporalio.client import Client

from signoff.audit.call_history import PastCall, past_calls_of
from signoff.audit.log import AuditLog
from signoff.contracts.clock import Clock
from signoff.contracts.errors import ServerUnavailable, StoreUnavailable
from signoff.contracts.limits import BACK_TEST_SECONDS, BACK_TEST_TURNS
from signoff.engine import turn_list
from signoff.engine.policy_simulation import SimulatedCall, simulate_turn
from signoff.registry.catalog import Catalog
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store

BACK_TEST_DAYS: Final = 30
_KEPT: Final = timedelta(minutes=10)
_AT_ONCE: Final = 4
"""Histories in memory."""


@dataclass(frozen=True)
class ToolVerdicts:
    """The verdicts on one tool's calls."""

    tool: str
    ask: int
    run: int
    deny: int
    unknown: int


@dataclass(frozen=True)
class BackTest:
    """The verdicts by tool, most calls first."""

    at: datetime
    tools: tuple[ToolVerdicts, ...]
    turns: int
    cut: bool
    """True if older turns are left out."""


class BackTests:
    """Runs one back-test at a time. A result serves its tenant for ten minutes."""

    def __init__(self, client: Client, store: Store, catalog: Catalog, clock: Clock) -> None:
        self._client = client
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._kept: dict[str, BackTest] = {}
        self._running = asyncio.Lock()

    def recent(self, tenant: str) -> BackTest | None:
        found = self._kept.get(tenant)
        return found if found is not None and self._clock() - found.at < _KEPT else None

    async def run(self, tenant: str) -> BackTest:
        """Call only for a reader of all requests of `tenant`.

        Raises `TimeoutError` if a list takes too long, `ServerUnavailable`, `StoreUnavailable`, `Refused`.
        """
        ends = asyncio.get_running_loop().time() + BACK_TEST_SECONDS
        async with asyncio.timeout_at(ends):
            await self._running.acquire()
        try:
            found = self.recent(tenant) or await self._run(tenant, ends)
        finally:
            self._running.release()
        self._kept[tenant] = found
        return found

    async def _run(self, tenant: str, ends: float) -> BackTest:
        now = self._clock()
        async with asyncio.timeout_at(ends):
            rows = await turn_list.turns(
                self._client,
                RequestLists(self._store),
                tenant=tenant,
                since=now - timedelta(days=BACK_TEST_DAYS),
                # Anyone who can start workflows can name another tenant in their attributes.
                wanted=lambda row: row.tenant == tenant,
                limit=BACK_TEST_TURNS + 1,
            )
            streams = [row.workflow_id for row in rows[:BACK_TEST_TURNS]]
            calls: dict[str, list[PastCall]] = {stream: [] for stream in streams}
            for call in await past_calls_of(AuditLog(self._store), streams):
                calls[call.stream].append(call)
        tried, seen = list[SimulatedCall](), 0
        # Show what is known at the end of the time.
        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends):
                for begin in range(0, len(streams), _AT_ONCE):
                    some = streams[begin : begin + _AT_ONCE]
                    for found in await asyncio.gather(*(self._judge(stream, calls[stream]) for stream in some)):
                        tried += found
                    seen += len(some)
        return BackTest(now, count_verdicts(tried), seen, cut=seen < len(rows))

    async def _judge(self, stream: str, calls: Sequence[PastCall]) -> list[SimulatedCall]:
        if not calls:
            return []
        try:
            return await simulate_turn(self._client, self._store, self._catalog, stream, calls)
        except (ServerUnavailable, StoreUnavailable):
            raise
        except Exception:
            # Anyone who can start workflows wrote this history: a bad one must not hide all others.
            return [SimulatedCall(call, "unknown", "its history cannot be read") for call in calls]


def count_verdicts(tried: Sequence[SimulatedCall]) -> tuple[ToolVerdicts, ...]:
    tools: dict[str, Counter[str]] = {}
    for each in tried:
        tools.setdefault(each.past.tool, Counter())[each.would] += 1
    ordered = sorted(tools.items(), key=lambda each: (-each[1].total(), each[0]))
    return tuple(
        ToolVerdicts(tool, ask=found["ask"], run=found["run"], deny=found["deny"], unknown=found["unknown"])
        for tool, found in ordered
    )
