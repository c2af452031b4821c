"""Writes metrics as OpenMetrics, or in Prometheus' own format on request."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from signoff.telemetry.counts import Gauges, HistogramCounts, ProcessCounts
from signoff.telemetry.metric_table import METRICS
from signoff.telemetry.metric_table import Metric as TableRow


class Series(Protocol):
    """One series counted by the SDK."""

    @property
    def name(self) -> str:
        """It includes the unit."""
        ...

    @property
    def help(self) -> str: ...

    @property
    def labels(self) -> tuple[tuple[str, str], ...]: ...

    @property
    def value(self) -> float | HistogramCounts: ...

    @property
    def grows(self) -> bool: ...


def write_metrics(
    counts: ProcessCounts, gauges: Gauges, sdk: Iterable[Series], info: tuple[str, ...], accept: str
) -> tuple[str, bytes]:
    """Write the format that `accept`, an HTTP header, requests. Return the content type and the metrics.

    `info` holds the label values of `signoff_build`.
    """
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([*_own_families(counts, gauges, info), *_sdk_families(sdk)]))
    ProcessCollector(registry=registry)
    return content_type, encode(registry)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _own_families(counts: ProcessCounts, gauges: Gauges, info: tuple[str, ...]) -> Iterator[Metric]:
    for name, row in METRICS.items():
        if row.kind == "info":
            yield InfoMetricFamily(name, row.help, value=dict(zip(row.labels, info, strict=True)))
        elif row.kind == "counter":
            yield _counter(name, row, counts.counters.get(name, {}))
        elif row.kind == "histogram":
            histogram = HistogramMetricFamily(name, row.help, labels=row.labels)
            for labels, held in counts.histograms.get(name, {}).items():
                histogram.add_metric(labels, buckets=_buckets(held), sum_value=held.sum)
            yield histogram
        elif row.kind == "gauge" and name in gauges.values:
            gauge = GaugeMetricFamily(name, row.help, labels=row.labels)
            for labels, value in gauges.values[name].items():
                gauge.add_metric(labels, value)
            yield gauge
        elif name in gauges.histograms:
            held = gauges.histograms[name]
            spread = GaugeHistogramMetricFamily(name, row.help, labels=())
            spread.add_metric((), buckets=_buckets(held), gsum_value=held.sum)
            yield spread


def _counter(name: str, row: TableRow, series: Mapping[tuple[str, ...], float]) -> Metric:
    counter = CounterMetricFamily(name, row.help, labels=row.labels)
    for labels, value in series.items():
        counter.add_metric(labels, value)
    if not row.labels and not series:
        # Without labels there is one series, and an alert must distinguish 0 from a stopped process.
        counter.add_metric((), 0.0)
    return counter


def _sdk_families(sdk: Iterable[Series]) -> Iterator[Metric]:
    by_name: dict[str, list[Series]] = {}
    for each in sdk:
        by_name.setdefault(each.name, []).append(each)
    for name, series in sorted(by_name.items()):
        labels = sorted({label for each in series for label, _ in each.labels})
        family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if isinstance(series[0].value, HistogramCounts):
            family = HistogramMetricFamily(name, series[0].help, labels=labels)
        elif series[0].grows:
            family = CounterMetricFamily(name, series[0].help, labels=labels)
        else:
            family = GaugeMetricFamily(name, series[0].help, labels=labels)
        for each in series:
            values = [dict(each.labels).get(label, "") for label in labels]
            if isinstance(each.value, HistogramCounts) and isinstance(family, HistogramMetricFamily):
                family.add_metric(values, buckets=_buckets(each.value), sum_value=each.value.sum)
            elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and isinstance(each.value, float):
                family.add_metric(values, each.value)
        yield family


def _buckets(held: HistogramCounts) -> list[tuple[str, float]]:
    found, below = [], 0
    for bound, number in zip((*map(str, held.bounds), "+Inf"), held.numbers, strict=True):
        below += number
        found.append((bound, float(below)))
    return found
