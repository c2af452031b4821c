"""Renders measurements of external calls, as JSON and as Markdown tables."""

from statistics import median
from typing import Final

from tools.bench.report import Figures, Where, render_table
from tools.bench.sides import BASELINE, SIGNOFF

MAX_RATIO: Final = 1.3
"""The target: p50 of an automatic external call over that of a hand-written workflow, at concurrency 1."""
MAX_EVENTS_AUTOMATIC: Final = 18
MAX_EVENTS_ASKED: Final = 28
RUN: Final = "run by Signoff"
PERMIT: Final = "permitted and used, one request"
WHOLE: Final = "permitted, used and reported, two requests"


class CallFigure(Figures):
    """One kind of call in one round, one at a time: both p50 in milliseconds."""

    kind: str
    number: int
    hand_p50_ms: float
    p50_ms: float

    @property
    def ratio(self) -> float:
        return self.p50_ms / self.hand_p50_ms

    def line(self) -> str:
        took = f"{self.hand_p50_ms:5.1f} {self.p50_ms:5.1f} ms  {self.ratio:.2f}"
        return f"round {self.number}  {self.kind:<44} {took}"


class CallProcessor(Figures):
    """Processor milliseconds of one call: in our process (worker, gateway and client), and in the server."""

    kind: str
    side: str
    own_ms: float
    server_ms: float


class CallsReport(Figures):
    """One run."""

    date: str
    engine: int
    where: Where
    rounds: int
    calls: int
    figures: tuple[CallFigure, ...]
    processor: tuple[CallProcessor, ...]
    events_run: int
    events_used: int
    events_asked: int

    def ratio(self, kind: str) -> float:
        return median(each.ratio for each in self.figures if each.kind == kind)


def render(report: CallsReport) -> str:
    asked = report.where
    conditions = (
        f"{report.date}, engine {report.engine}: {report.rounds} rounds of {report.calls} calls of each kind; "
        f"{asked.cpus} CPUs, Python {asked.python}, Temporal server {asked.server}, SDK {asked.sdk}"
    )
    return "\n\n".join((conditions, _latencies(report), _processor(report), _verdict(report)))


def _latencies(report: CallsReport) -> str:
    rows = []
    for kind in dict.fromkeys(each.kind for each in report.figures):
        own = [each for each in report.figures if each.kind == kind]
        ratios = sorted(each.ratio for each in own)
        hand, ours = median(each.hand_p50_ms for each in own), median(each.p50_ms for each in own)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        rows.append((kind, f"{hand:.1f}", f"{ours:.1f}", f"{median(ratios):.2f}", spread))
    return render_table(("p50 at 1, ms", BASELINE, SIGNOFF, "ratio", "ratios of the rounds"), rows)


def _processor(report: CallsReport) -> str:
    rows = [(each.kind, each.side, f"{each.own_ms:.1f}", f"{each.server_ms:.1f}") for each in report.processor]
    return render_table(("processor a call, ms", "side", "ours", "the server's"), rows)


def _verdict(report: CallsReport) -> str:
    checks = [(f"{kind}, ratio", report.ratio(kind), MAX_RATIO) for kind in (RUN, PERMIT, WHOLE)]
    checks += [
        ("events, run by Signoff", report.events_run, MAX_EVENTS_AUTOMATIC),
        ("events, run by the agent", report.events_used, MAX_EVENTS_AUTOMATIC),
        ("events, asked, run by the agent", report.events_asked, MAX_EVENTS_ASKED),
    ]
    rows = [
        (name, f"{found:.2f}", f"at most {most:g}", "ok" if found <= most else "missed") for name, found, most in checks
    ]
    return render_table(("target", "measured", "wanted", ""), rows)
