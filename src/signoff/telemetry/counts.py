"""Adds up what one process does, for whoever scrapes it; in memory, and begun anew with each process."""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from signoff.telemetry.metric_table import LABEL_SETS, METRICS, OTHER, TENANTS


class Count(NamedTuple):
    """So much more of one metric."""

    metric: str
    """The metric's name."""
    labels: tuple[str, ...]
    """The values of its labels, in their order."""
    value: float = 1.0
    """By how much a counter grows, or what a histogram is to hold."""


class HistogramCounts:
    """How many observations fell into each bucket of a histogram."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.numbers = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Adds one observation."""
        self.numbers[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Gauges(NamedTuple):
    """What was measured at one moment, by metric and labels."""

    values: Mapping[str, Mapping[tuple[str, ...], float]]
    """The gauges."""
    histograms: Mapping[str, HistogramCounts]
    """The gauge histograms, which have no labels."""


class TenantLabels:
    """Gives `TENANTS` tenants a label of their own, those that are declared before others, and all later ones `OTHER`.

    Whoever may write to Temporal starts turns of tenants that nobody has heard of: they take no declared one's place.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._declared: frozenset[str] = frozenset()

    def declare(self, tenants: Iterable[str]) -> None:
        """Keeps places for the tenants whose people are declared."""
        self._declared = frozenset(sorted({*self._declared, *tenants})[:TENANTS])

    def label(self, tenant: str) -> str:
        """Returns the label of a tenant; the same one for as long as the process runs."""
        if tenant in self._declared or len(self._known | self._declared) < TENANTS:
            self._known.add(tenant)
        return tenant if tenant in self._known else OTHER

    @property
    def known(self) -> frozenset[str]:
        """The tenants that have a label of their own."""
        return frozenset(self._known)


class ProcessCounts:
    """The counters and histograms of one process. To be used from one event loop."""

    def __init__(self) -> None:
        self.counters: dict[str, dict[tuple[str, ...], float]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], HistogramCounts]] = {}
        self.tenants = TenantLabels()

    def count(self, metric: str, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter. Raises `KeyError` for a metric that is not in the table."""
        self.add((Count(metric, labels, by),))

    def observe(self, metric: str, value: float, *labels: str) -> None:
        """Adds an observation to a histogram. Raises `KeyError` for a metric that is not in the table."""
        self.add((Count(metric, labels, value),))

    def add(self, counts: Iterable[Count]) -> None:
        """Adds counts to whatever they are of. Raises `KeyError` for a metric that is not in the table."""
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
    # A mistake that lets an id become a label must not fill the memory of this process and of whoever scrapes it.
    return labels if labels in series or len(series) < LABEL_SETS else (OTHER,) * len(labels)
