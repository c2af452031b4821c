"""Renders the measurements of an installation with many waiting turns, with the growth of each figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, computed_field

EXTENDED_TO: Final = 100_000
"""The number of turns for which a line gives the figure."""


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True)


class Spread(_Figures):
    """Several measurements of one figure."""

    least: float
    middle: float
    most: float


class Point(_Figures):
    """One number of waiting turns, or of due cards, with its figures. Their names have the unit."""

    turns: int
    figures: dict[str, Spread]


class Line(_Figures):
    """The straight line `at + each * turns` through a figure's medians, by least squares."""

    at: float
    each: float

    def value(self, turns: int) -> float:
        return self.at + self.each * turns


class ScaleReport(_Figures):
    """One run of one experiment on one kind of store."""

    experiment: str
    date: str
    engine: int
    cpus: int
    store: str
    points: tuple[Point, ...] = ()
    figures: dict[str, Spread] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def lines(self) -> dict[str, Line]:
        """The lines of all figures with measurements at three or more numbers of turns, all below `EXTENDED_TO`."""
        if len(self.points) < 3 or self.points[-1].turns >= EXTENDED_TO:
            return {}
        return {
            name: fit_line([(each.turns, each.figures[name].middle) for each in self.points]) for name in self._names
        }

    @property
    def _names(self) -> list[str]:
        return list(self.points[0].figures) if self.points else []

    def growth(self, name: str) -> float:
        """Return the figure at the most turns over that at the fewest."""
        first, last = self.points[0].figures[name].middle, self.points[-1].figures[name].middle
        return last / first if first else math.inf


def spread(values: Iterable[float]) -> Spread:
    found = sorted(values)
    return Spread(least=found[0], middle=median(found), most=found[-1])


def spreads(taken: Mapping[str, Sequence[float]]) -> dict[str, Spread]:
    return {name: spread(values) for name, values in taken.items()}


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Use least squares. `points` are two or more."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    each = sum((x - middle_x) * (y - middle_y) for x, y in points) / sum((x - middle_x) ** 2 for x in xs)
    return Line(at=middle_y - each * middle_x, each=each)


def render(report: ScaleReport) -> str:
    title = f"{report.date}, engine {report.engine}, {report.cpus} CPUs, {report.experiment} on {report.store}"
    if not report.points:
        rows = [[name, *_cells(each)] for name, each in report.figures.items()]
        return f"{title}\n\n{_table(['figure', 'least', 'median', 'most'], rows)}"
    lines = report.lines
    last = report.points[-1]
    head = ["figure", *(f"{each.turns:,}" for each in report.points), f"least and most at {last.turns:,}", "growth"]
    head += [f"{EXTENDED_TO:,}, by the line"] if lines else []
    rows = []
    for name, most in last.figures.items():
        row = [name, *(_number(each.figures[name].middle) for each in report.points)]
        row += [f"{_number(most.least)} to {_number(most.most)}", f"{report.growth(name):.2f}"]
        rows.append(row + ([_number(lines[name].value(EXTENDED_TO))] if lines else []))
    return f"{title}\n\n{_table(head, rows)}"


def _cells(values: Spread) -> list[str]:
    return [_number(values.least), _number(values.middle), _number(values.most)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    widths = [max(len(str(row[n])) for row in (head, *rows)) for n in range(len(head))]
    text = [[str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (head, *rows)]
    text.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(row) + " |" for row in text)
