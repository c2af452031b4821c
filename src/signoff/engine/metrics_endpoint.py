"""Serves the metrics of one process: its counts, the store's backlog, and the metrics of Temporal's SDK."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.names import VERSION
from signoff.engine.worker_watch import WorkerWatch
from signoff.registry.extras import require_extra
from signoff.settings import Settings
from signoff.store.gauges.backlog_reader import Backlog, BacklogReader
from signoff.store.store import Store
from signoff.telemetry.counts import Gauges, HistogramCounts, TenantLabels
from signoff.telemetry.metric_table import AGES

if TYPE_CHECKING:
    from signoff.temporal.sdk_metrics import SdkMetrics

ProcessKind = Literal["worker", "gateway", "dev"]
READ_SECONDS: Final = 15.0
"""Seconds to reuse a reading of the store, for any number of scrapers."""
_DRAIN_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class MetricsEndpoint:
    """Create it before connecting to Temporal: it measures the SDK from then on, if a port is set.

    Raises `ConfigError` if the extra is not installed.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.is_ready = False
        """True if the process does its work, for `/readyz`. The owner sets it."""
        self._sdk: SdkMetrics | None = None
        if settings.metrics_port is None:
            return
        require_extra("metrics", "SIGNOFF_METRICS_PORT")
        from signoff.temporal.sdk_metrics import measure_sdk  # noqa: PLC0415

        self._sdk = measure_sdk()

    @asynccontextmanager
    async def serve(self, store: Store, kind: ProcessKind, workers: WorkerWatch | None = None) -> AsyncIterator[None]:
        """Answer scrapes and probes until the block ends, if a port is set. Raises `ServerUnavailable`."""
        host, port = self._settings.metrics_host, self._settings.metrics_port
        if port is None:
            yield
            return
        # Load these modules only if a port is set.
        from signoff.telemetry.exposition import write_metrics  # noqa: PLC0415
        from signoff.telemetry.metrics_server import running_metrics_server  # noqa: PLC0415

        gauges = StoreGauges(store, reads=kind != "worker")

        async def scrape(accept: str) -> tuple[str, bytes]:
            series = () if self._sdk is None else self._sdk.series()
            found = await gauges.read()
            if workers is not None and (running := await workers.running()) is not None:
                found = found._replace(values={**found.values, "signoff_worker_up": {(): float(running)}})
            return write_metrics(store.counts, found, series, (VERSION, kind), accept)

        draining = asyncio.create_task(self._drain())
        try:
            async with running_metrics_server(scrape, host, port, lambda: self.is_ready):
                yield
        finally:
            draining.cancel()

    async def _drain(self) -> None:
        while self._sdk is not None:
            self._sdk.drain()
            await asyncio.sleep(_DRAIN_SECONDS)


class StoreGauges:
    """Measures the store's backlog, at most once in `READ_SECONDS`, and nothing without `reads`.

    A worker's role cannot read the queues, and two processes would report the same.
    """

    def __init__(self, store: Store, *, reads: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._backlog = BacklogReader(store)
        self._tenants = store.counts.tenants
        self._reads = reads
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at: float | None = None
        self._found = Gauges({}, {})

    async def read(self) -> Gauges:
        """Return only the store's state if it does not answer."""
        if not self._reads:
            return self._found
        async with self._lock:
            if self._read_at is None or self._clock() - self._read_at >= READ_SECONDS:
                try:
                    self._found = gauges_from_backlog(await self._backlog.read(), self._tenants)
                except StoreUnavailable as error:
                    _log.warning("the backlog is not measured: %s", error.message)
                    self._found = Gauges({"signoff_store_up": {(): 0.0}}, {})
                self._read_at = self._clock()
            return self._found


def gauges_from_backlog(backlog: Backlog, tenants: TenantLabels) -> Gauges:
    """Give every labelled tenant its own gauges, and all others one of each kind."""
    waiting: dict[tuple[str, ...], float] = {}
    oldest: dict[tuple[str, ...], float] = {}
    ages = HistogramCounts(AGES)
    for tenant, found in backlog.requests.items():
        place = (tenants.label(tenant),)
        waiting[place] = waiting.get(place, 0.0) + found.requests
        oldest[place] = max(oldest.get(place, 0.0), found.oldest_seconds)
        ages.numbers = [held + more for held, more in zip(ages.numbers, found.by_age, strict=True)]
        ages.sum += found.total_seconds
    for tenant in tenants.known:
        # After the last answer, report zero: a missing value means something else.
        waiting.setdefault((tenant,), 0.0)
        oldest.setdefault((tenant,), 0.0)
    values: dict[str, Mapping[tuple[str, ...], float]] = {
        "signoff_store_up": {(): 1.0},
        "signoff_frozen_tenants": {(): float(backlog.frozen)},
        "signoff_waiting_requests": waiting,
        "signoff_waiting_requests_oldest_age_seconds": oldest,
        "signoff_queue_entries": {(name,): float(each.entries) for name, each in backlog.queues.items()},
        "signoff_queue_oldest_age_seconds": {(name,): each.oldest_seconds for name, each in backlog.queues.items()},
    }
    return Gauges(values, {"signoff_waiting_requests_age_seconds": ages})
