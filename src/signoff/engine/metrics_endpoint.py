"""Serves the metrics of one process: its counts, the store's backlog, and the metrics of Temporal's SDK."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal

from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.names import VERSION
from signoff.engine.worker_watch import WorkerWatch
from signoff.registry.extras import require_extra
from signoff.settings import Settings
from signoff.store.gauges.backlog_reader import Backlog
from signoff.store.gauges.backlog_readings import BacklogReading, BacklogReadings
from signoff.store.store import Store
from signoff.telemetry.counts import Gauges, HistogramCounts, TenantLabels
from signoff.telemetry.metric_table import AGES

if TYPE_CHECKING:
    from signoff.temporal.sdk_metrics import SdkMetrics

ProcessKind = Literal["worker", "gateway", "dev"]
_LOOK_SECONDS: Final = 5.0
"""Seconds between looks whether a measurement is due."""
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

        tasks = [asyncio.create_task(work) for work in (self._drain(), gauges.keep_measured())]
        try:
            async with running_metrics_server(scrape, host, port, lambda: self.is_ready):
                yield
        finally:
            for task in tasks:
                task.cancel()

    async def _drain(self) -> None:
        while self._sdk is not None:
            self._sdk.drain()
            await asyncio.sleep(_DRAIN_SECONDS)


class StoreGauges:
    """Shows the store's backlog, as last measured by any gateway, and nothing without `reads`.

    A worker's role cannot read the queues, and two processes would report the same.
    """

    def __init__(self, store: Store, *, reads: bool) -> None:
        self._readings = BacklogReadings(store)
        self._tenants = store.counts.tenants
        self._reads = reads

    async def keep_measured(self) -> None:
        """Renew the measurement until cancelled, in turn with other gateways."""
        while self._reads:
            try:
                await self._readings.renew()
            except StoreUnavailable as error:
                _log.warning("the backlog is not measured: %s", error.message)
            await asyncio.sleep(_LOOK_SECONDS)

    async def read(self) -> Gauges:
        """Return only the store's state if it does not answer or was never measured."""
        if not self._reads:
            return Gauges({}, {})
        try:
            reading = await self._readings.last()
        except StoreUnavailable as error:
            _log.warning("the backlog cannot be read: %s", error.message)
            return Gauges({"signoff_store_up": {(): 0.0}}, {})
        return Gauges({"signoff_store_up": {(): 1.0}}, {}) if reading is None else self._show(reading)

    def _show(self, reading: BacklogReading) -> Gauges:
        found = gauges_from_backlog(reading.backlog, self._tenants)
        return found._replace(values={**found.values, "signoff_backlog_age_seconds": {(): reading.age}})


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
