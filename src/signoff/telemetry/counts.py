"""Counts the events of one process for scrapers, in memory, from zero at each start."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from signoff.telemetry.metric_table import LABEL_SETS, METRICS, OTHER, TENANTS


class Count(NamedTuple):
    """An increment of one metric."""

    metric: str
    labels: tuple[str, ...]
    value: float = 1.0
    """A counter's increment, or a histogram's observation."""


class HistogramCounts:
    """A histogram's observations by bucket."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.numbers = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.numbers[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Gauges(NamedTuple):
    """Measurements at one moment, by metric and labels."""

    values: Mapping[str, Mapping[tuple[str, ...], float]]
    histograms: Mapping[str, HistogramCounts]
    """Gauge histograms have no labels."""


class TenantLabels:
    """Gives `TENANTS` tenants their own label, declared ones first, and `OTHER` to the rest.

    Anyone who can write to Temporal can start turns of unknown tenants: these never take a declared tenant's place.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._declared: frozenset[str] = frozenset()

    def declare(self, tenants: Iterable[str]) -> None:
        self._declared = frozenset(sorted({*self._declared, *tenants})[:TENANTS])

    def label(self, tenant: str) -> str:
        """The label is constant during the process."""
        if tenant in self._declared or len(self._known | self._declared) < TENANTS:
            self._known.add(tenant)
        return tenant if tenant in self._known else OTHER

    @property
    def known(self) -> frozenset[str]:
        return frozenset(self._known)


class ProcessCounts:
    """The counters and histograms of one process, for use from one event loop."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[tuple[str, ...], float]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], HistogramCounts]] = {}
        self.tenants = TenantLabels()

    def count(self, metric: str, *labels: str, by: float = 1.0) -> None:
        """Raise `KeyError` for a metric outside the table."""
        self.add((Count(metric, labels, by),))

    def observe(self, metric: str, value: float, *labels: str) -> None:
        """Raise `KeyError` for a metric outside the table."""
        self.add((Count(metric, labels, value),))

    def add(self, counts: Iterable[Count]) -> None:
        """Raise `KeyError` for a metric outside the table."""
        for metric, labels, value in counts:
            known = METRICS[metric]
            if known.labels[:1] == ("tenant",):
                labels = (self.tenants.label(labels[0]), *labels[1:])
            if known.kind == "histogram":
                series = self.histograms.setdefault(metric, {})
                place = _place(series, labels)
                if place not in series:
                    series[place] = HistogramCounts(known.buckets)
                series[place].observe(value)
            else:
                added = self.counters.setdefault(metric, {})
                place = _place(added, labels)
                added[place] = added.get(place, 0.0) + value


def _place(series: Collection[tuple[str, ...]], labels: tuple[str, ...]) -> tuple[str, ...]:
    # If a bug turns an id into a label, it must not exhaust the memory of this process and its scrapers.
    return labels if labels in series or len(series) < LABEL_SETS else (OTHER,) * len(labels)
