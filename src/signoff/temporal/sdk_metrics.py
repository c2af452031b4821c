"""Reads the metrics of Temporal's SDK, to serve them together with Signoff's own.

The SDK buffers each measurement until it is read, and drops further ones if the buffer is full.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from temporalio.runtime import (
    BUFFERED_METRIC_KIND_COUNTER,
    BUFFERED_METRIC_KIND_HISTOGRAM,
    BufferedMetricUpdate,
    MetricBuffer,
    MetricBufferDurationFormat,
    Runtime,
    TelemetryConfig,
)

from signoff.telemetry.counts import HistogramCounts
from signoff.telemetry.metric_table import LABEL_SETS, SECONDS

BUFFER_SIZE: Final = 50_000
"""Measurements that the SDK buffers between two reads. A turn produces some hundred."""
_log = logging.getLogger(__name__)
_Labels = tuple[tuple[str, str], ...]


class SdkSeries(NamedTuple):
    """One series of Temporal's SDK."""

    name: str
    """It includes the unit."""
    help: str
    labels: _Labels
    value: float | HistogramCounts
    grows: bool


class SdkMetrics:
    """Adds up the measurements in a buffer of the SDK, for use from one event loop."""

    def __init__(self, buffer: MetricBuffer) -> None:
        self._buffer = buffer
        self._series: dict[tuple[str, _Labels], SdkSeries] = {}

    def drain(self) -> None:
        for each in self._buffer.retrieve_updates():
            self._add(each)

    def series(self) -> Iterator[SdkSeries]:
        self.drain()
        yield from self._series.values()

    def _add(self, update: BufferedMetricUpdate) -> None:
        metric = update.metric
        name = f"{metric.name}_seconds" if metric.unit == "s" else metric.name
        labels = tuple(sorted((label, str(value)) for label, value in update.attributes.items()))
        known = self._series.get((name, labels))
        if known is None and len(self._series) >= LABEL_SETS:
            return
        held: float | HistogramCounts
        if metric.kind == BUFFERED_METRIC_KIND_HISTOGRAM:
            held = known.value if known and isinstance(known.value, HistogramCounts) else HistogramCounts(SECONDS)
            held.observe(update.value)
        elif metric.kind == BUFFERED_METRIC_KIND_COUNTER:
            before = known.value if known and isinstance(known.value, float) else 0.0
            held = before + update.value
        else:
            held = float(update.value)
        grows = metric.kind == BUFFERED_METRIC_KIND_COUNTER
        self._series[name, labels] = SdkSeries(name, metric.description or "", labels, held, grows)


def measure_sdk() -> SdkMetrics | None:
    """Measure every later client of this process. Call this before the first connection.

    Returns `None` if the program has set up its own measurement.
    """
    buffer = MetricBuffer(BUFFER_SIZE, MetricBufferDurationFormat.SECONDS)
    try:
        Runtime.set_default(Runtime(telemetry=TelemetryConfig(metrics=buffer)))
    except RuntimeError:
        _log.info("Temporal's SDK runs already: its own metrics are not at the endpoint of Signoff")
        return None
    return SdkMetrics(buffer)
