"""Counts the present policies' verdicts on the newest calls. Keeps no argument."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
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
from signoff.contracts.responses import TurnRow
from signoff.engine import turn_list
from signoff.engine.policy_simulation import SimulatedCall, simulate_turn
from signoff.registry.catalog import Catalog
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store

BACK_TEST_DAYS: Final = 30
_KEPT: Final = timedelta(minutes=10)
_AT_ONCE: Final = 4
"""Histories in memory."""
_TURN_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


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
    """True if turns are left out."""
    finished: bool


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
        async with asyncio.timeout(BACK_TEST_SECONDS):
            await self._running.acquire()
        try:
            found = self.recent(tenant)
            if found is None:
                # Waiting for the lock takes nothing from this time.
                found = await self._run(tenant, asyncio.get_running_loop().time() + BACK_TEST_SECONDS)
                if found.finished:
                    self._kept[tenant] = found
            return found
        finally:
            self._running.release()

    async def _run(self, tenant: str, ends: float) -> BackTest:
        now = self._clock()
        listed: set[str] = set()

        def is_new(row: TurnRow) -> bool:
            # Anyone who can start workflows can name another tenant in their attributes. A reset turn has several runs.
            if row.tenant != tenant or row.workflow_id in listed:
                return False
            listed.add(row.workflow_id)
            return True

        async with asyncio.timeout_at(ends):
            rows = await turn_list.turns(
                self._client,
                RequestLists(self._store),
                tenant=tenant,
                since=now - timedelta(days=BACK_TEST_DAYS),
                wanted=is_new,
                limit=BACK_TEST_TURNS + 1,
            )
            calls: dict[str, list[PastCall]] = {row.workflow_id: [] for row in rows[:BACK_TEST_TURNS]}
            for call in await past_calls_of(AuditLog(self._store), calls):
                calls[call.stream].append(call)
        tried, seen = await self._judge_all(calls, ends)
        return BackTest(now, count_verdicts(tried), seen, cut=seen < len(rows), finished=seen == len(calls))

    async def _judge_all(
        self, calls: Mapping[str, Sequence[PastCall]], ends: float
    ) -> tuple[Sequence[SimulatedCall], int]:
        left, tried, seen = deque(calls), list[SimulatedCall](), 0

        async def work() -> None:
            nonlocal seen
            while left:
                stream = left.popleft()
                try:
                    tried.extend(await self._judge(stream, calls[stream]))
                except (ServerUnavailable, StoreUnavailable) as error:
                    _log.warning("a back-test stopped: %s", type(error).__name__)
                    left.clear()
                else:
                    seen += 1

        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends), asyncio.TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(work())
        return tried, seen

    async def _judge(self, stream: str, calls: Sequence[PastCall]) -> list[SimulatedCall]:
        if not calls:
            return []
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                return await simulate_turn(self._client, self._store, self._catalog, stream, calls)
        except (ServerUnavailable, StoreUnavailable):
            raise
        except Exception:
            # Anyone who can start workflows wrote this history: a bad or endless one must not hide all others.
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
