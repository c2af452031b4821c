"""Renders one run of all sides, as JSON and as Markdown tables. Signoff comes first, LangGraph last."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from pydantic import computed_field

from tools.bench.report import Check, Figures, Size, Where, render_table
from tools.bench.sides import BASELINE, SIGNOFF

PYDANTIC: Final = "pydantic-ai"
PYDANTIC_BARE: Final = "pydantic-ai, no sandbox"
LANGGRAPH: Final = "langgraph"
MIN_HUMAN: Final = 0.85
"""Signoff's human turns a second, over the hand-written workflow's."""
MIN_AUTOMATIC: Final = 0.97
MAX_DECISION: Final = 1.25
"""Signoff's p50 from decision to done, over the hand-written workflow's."""
_LEVEL: Final = 1.0
"""The target of ratios to Pydantic AI."""


class PeerSettings(Figures):
    """The settings of a run. `turns` of each kind are played in each round."""

    rounds: int
    turns: int
    latency_turns: int
    concurrency: int


class PeerRound(Figures):
    """One side in one round. `cpu_ms` is the processor time of a human turn in our process: worker and client."""

    number: int
    side: str
    human: float
    automatic: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float

    def line(self) -> str:
        return (
            f"round {self.number}  {self.side:<24} {self.human:6.1f} human/s {self.automatic:6.1f} automatic/s"
            f"  decision to done p50 {self.p50_ms:6.1f} ms  p95 {self.p95_ms:6.1f} ms  cpu {self.cpu_ms:5.1f} ms"
        )


@dataclass(frozen=True)
class Measure:
    """One figure of a round."""

    name: str
    of: Callable[[PeerRound], float]
    more: bool
    """Whether more of it is better."""


HUMAN_RATE: Final = Measure("human turns/s", lambda each: each.human, more=True)
AUTOMATIC_RATE: Final = Measure("automatic turns/s", lambda each: each.automatic, more=True)
P50: Final = Measure("decision to done p50, ms", lambda each: each.p50_ms, more=False)
P95: Final = Measure("decision to done p95, ms", lambda each: each.p95_ms, more=False)
CPU: Final = Measure("processor a human turn, ms", lambda each: each.cpu_ms, more=False)
MEASURES: Final = (HUMAN_RATE, AUTOMATIC_RATE, P50, P95, CPU)
_TARGETS: Final = (
    (HUMAN_RATE, BASELINE, MIN_HUMAN),
    (AUTOMATIC_RATE, BASELINE, MIN_AUTOMATIC),
    (P50, BASELINE, MAX_DECISION),
    *((measure, side, _LEVEL) for side in (PYDANTIC, PYDANTIC_BARE) for measure in (HUMAN_RATE, AUTOMATIC_RATE, P50)),
)


_COUNTS: Final[tuple[tuple[str, Callable[[Size], int], str], ...]] = (
    ("events, automatic turn", lambda size: size.events_automatic, ""),
    ("events, human turn", lambda size: size.events_human, ""),
    ("history bytes, automatic turn", lambda size: size.bytes_automatic, ","),
    ("history bytes, human turn", lambda size: size.bytes_human, ","),
)


class Spread(Figures):
    """The median of the rounds, the least and the most."""

    middle: float
    least: float
    most: float

    def text(self, style: str) -> str:
        return f"{self.middle:{style}} ({self.least:{style}} to {self.most:{style}})"


class PeersReport(Figures):
    """One run."""

    date: str
    engine: int
    where: Where
    versions: dict[str, str]
    settings: PeerSettings
    rounds: tuple[PeerRound, ...]
    sizes: tuple[Size, ...]
    """LangGraph has no history."""

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.side for each in self.rounds))

    def spread(self, side: str, measure: Measure) -> Spread:
        return _spread([measure.of(each) for each in self.rounds if each.side == side])

    def ratio(self, side: str, measure: Measure) -> Spread:
        """Divide Signoff's figure of each round by the side's figure of the same round."""
        own = {each.number: measure.of(each) for each in self.rounds if each.side == SIGNOFF}
        return _spread([own[each.number] / measure.of(each) for each in self.rounds if each.side == side])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(
            Check(
                name=f"{measure.name}, over {side}",
                measured=self.ratio(side, measure).middle,
                bound="at least" if measure.more else "at most",
                target=target,
            )
            for measure, side, target in _TARGETS
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def behind(self) -> tuple[str, ...]:
        """Every figure in which Signoff does worse than another side, with the ratio."""
        timed = [
            (side, measure.name, self.ratio(side, measure).middle, measure.more)
            for side in self.sides
            if side != SIGNOFF
            for measure in MEASURES
        ]
        counted = [
            (size.side, name, count(self.sizes[0]) / count(size), False)
            for size in self.sizes[1:]
            for name, count, _ in _COUNTS
        ]
        return tuple(
            f"{name}, over {side}: {ratio:.2f}"
            for side, name, ratio, more in timed + counted
            if (ratio < _LEVEL if more else ratio > _LEVEL)
        )


def _spread(values: list[float]) -> Spread:
    return Spread(middle=median(values), least=min(values), most=max(values))


def render(report: PeersReport) -> str:
    behind = "\n".join(f"- {each}" for each in report.behind) or "- in none of these figures"
    return "\n\n".join(
        (_conditions(report), _figures(report), _ratios(report), _verdict(report), f"Signoff is behind:\n\n{behind}")
    )


def _conditions(report: PeersReport) -> str:
    asked, where = report.settings, report.where
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return (
        f"{report.date}, engine {report.engine}: {asked.rounds} rounds of {asked.turns} human and automatic turns at "
        f"{asked.concurrency} and {asked.latency_turns} decisions at 1; {where.cpus} CPUs, Python {where.python}, "
        f"Temporal server {where.server}, SDK {where.sdk}, {versions}"
    )


def _figures(report: PeersReport) -> str:
    rows = [
        (measure.name, *(report.spread(side, measure).text(".1f") for side in report.sides)) for measure in MEASURES
    ]
    sizes = {size.side: size for size in report.sizes}
    rows += [
        (name, *(f"{count(sizes[side]):{style}}" if side in sizes else "" for side in report.sides))
        for name, count, style in _COUNTS
    ]
    return render_table(("median (least to most)", *report.sides), rows)


def _ratios(report: PeersReport) -> str:
    others = [side for side in report.sides if side != SIGNOFF]
    rows = [(measure.name, *(report.ratio(side, measure).text(".2f") for side in others)) for measure in MEASURES]
    return render_table(("signoff over", *others), rows)


def _verdict(report: PeersReport) -> str:
    rows = [
        (each.name, f"{each.measured:.2f}", f"{each.bound} {each.target:g}", "ok" if each.ok else "missed")
        for each in report.checks
    ]
    return render_table(("target", "measured", "wanted", ""), rows)
