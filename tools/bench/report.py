"""The measurements, their targets, and their tables. All numbers come from one run."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median

from pydantic import BaseModel, ConfigDict, computed_field
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client

MIN_RATE_RATIO = 0.80
"""Signoff's turns per second at the set concurrency, over the hand-written workflow's."""
MAX_LATENCY_RATIO = 1.2
"""Signoff's p50 from decision to result, one turn at a time, over the hand-written workflow's."""
MAX_KB = 140.0
"""kB of resident memory per suspended turn of Signoff."""
MAX_BUILD_S = 2.0
"""Seconds for building a catalog of 10,000 tools."""
MAX_BATCH_MS = 5.0
"""Milliseconds of the gates for 20 calls against 1,000 tools."""
EVENTS_AUTOMATIC = 23
EVENTS_HUMAN = 33
MAX_HISTORY_BYTES = 9_000


class Figures(BaseModel):
    """Immutable measurements."""

    model_config = ConfigDict(frozen=True)


class Latency(Figures):
    """Milliseconds from sending a decision to receiving the result."""

    p50_ms: float
    p99_ms: float


class Rate(Figures):
    """Turns per second, and processor milliseconds per turn: in our process (worker and client), and in the server."""

    turns_per_second: float
    own_cpu_ms: float
    server_cpu_ms: float


class Round(Rate):
    """One side in one round."""

    number: int
    side: str
    decision_to_done: Latency

    def line(self) -> str:
        took = self.decision_to_done
        return (
            f"round {self.number}  {self.side:<12}  {self.turns_per_second:6.1f} turns/s"
            f"  cpu {self.own_cpu_ms:5.1f} + {self.server_cpu_ms:5.1f} ms a turn"
            f"  decision to done p50 {took.p50_ms:6.1f} ms  p99 {took.p99_ms:6.1f} ms"
        )


class Size(Figures):
    """Events and bytes of the history of one turn of each kind."""

    side: str
    events_automatic: int
    events_human: int
    bytes_automatic: int
    bytes_human: int


class Memory(Figures):
    """Resident memory (kB) of a worker's process with `turns` and with twice as many suspended turns cached."""

    side: str
    turns: int
    first_kb: float
    second_kb: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def kb_per_turn(self) -> float:
        """kB per additional suspended turn."""
        return (self.second_kb - self.first_kb) / self.turns


class GateTime(Figures):
    """p50 in milliseconds: judging one call, and claiming and recording its ticket."""

    judge_p50_ms: float
    ticket_p50_ms: float


class RegistryTime(Figures):
    """Processor seconds to build a catalog of 10,000 tools; p50 in ms of judging 20 calls against 1,000, no CEL."""

    build_s: float
    batch_p50_ms: float


class Where(Figures):
    """The machine, without its identity."""

    cpus: int
    python: str
    server: str
    sdk: str


async def where(client: Client) -> Where:
    info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
    return Where(
        cpus=os.cpu_count() or 0,
        python=platform.python_version(),
        server=info.server_version,
        sdk=version("temporalio"),
    )


class Settings(Figures):
    """The settings of a run. `turns` is the number per round."""

    rounds: int
    turns: int
    latency_turns: int
    concurrency: int
    memory_turns: int


class Medians(Figures):
    """One side's medians over the rounds."""

    side: str
    turns_per_second: float
    own_cpu_ms: float
    server_cpu_ms: float
    p50_ms: float
    p99_ms: float


class Check(Figures):
    """One target and its result. `bound` is the required relation of `measured` to `target`."""

    name: str
    measured: float
    bound: str
    target: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Whether the target was met."""
        if self.bound == "at least":
            return self.measured >= self.target
        return self.measured <= self.target if self.bound == "at most" else self.measured == self.target


class Report(Figures):
    """One run. The hand-written side comes first in `sizes`, `memory` and `medians`."""

    date: str
    engine: int
    where: Where
    settings: Settings
    rounds: tuple[Round, ...]
    sizes: tuple[Size, Size]
    memory: tuple[Memory, Memory]
    gates: GateTime
    registry: RegistryTime
    decisions_sent_as_signals: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def medians(self) -> tuple[Medians, Medians]:
        """Both sides' medians."""
        return _medians(self.rounds, self.sizes[0].side), _medians(self.rounds, self.sizes[1].side)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def checks(self) -> tuple[Check, ...]:
        """Every target with its measurement."""
        hand, ours = self.medians
        size = self.sizes[1]
        return (
            Check(
                name=f"turns/s at {self.settings.concurrency}, ratio",
                measured=ours.turns_per_second / hand.turns_per_second,
                bound="at least",
                target=MIN_RATE_RATIO,
            ),
            Check(
                name="decision to done p50 at 1, ratio",
                measured=ours.p50_ms / hand.p50_ms,
                bound="at most",
                target=MAX_LATENCY_RATIO,
            ),
            Check(
                name="kB a suspended turn",
                measured=self.memory[1].kb_per_turn,
                bound="at most",
                target=MAX_KB,
            ),
            Check(
                name="events, automatic turn", measured=size.events_automatic, bound="exactly", target=EVENTS_AUTOMATIC
            ),
            Check(name="events, human turn", measured=size.events_human, bound="exactly", target=EVENTS_HUMAN),
            Check(
                name="history bytes, human turn", measured=size.bytes_human, bound="at most", target=MAX_HISTORY_BYTES
            ),
            Check(
                name="catalog of 10,000 tools, s", measured=self.registry.build_s, bound="at most", target=MAX_BUILD_S
            ),
            Check(
                name="20 calls against 1,000 tools, ms",
                measured=self.registry.batch_p50_ms,
                bound="at most",
                target=MAX_BATCH_MS,
            ),
        )


def _medians(rounds: Sequence[Round], side: str) -> Medians:
    own = [each for each in rounds if each.side == side]
    return Medians(
        side=side,
        turns_per_second=median(each.turns_per_second for each in own),
        own_cpu_ms=median(each.own_cpu_ms for each in own),
        server_cpu_ms=median(each.server_cpu_ms for each in own),
        p50_ms=median(each.decision_to_done.p50_ms for each in own),
        p99_ms=median(each.decision_to_done.p99_ms for each in own),
    )


def render(report: Report) -> str:
    hand, ours = report.medians
    return "\n\n".join((_conditions(report), _rounds(report), _figures(report, hand, ours), _verdict(report)))


def _conditions(report: Report) -> str:
    asked, where = report.settings, report.where
    return (
        f"{report.date}, engine {report.engine}: {asked.rounds} rounds of {asked.turns} turns at {asked.concurrency} "
        f"and {asked.latency_turns} at 1; memory from {asked.memory_turns} to {2 * asked.memory_turns} turns; "
        f"{where.cpus} CPUs, Python {where.python}, Temporal server {where.server}, SDK {where.sdk}"
    )


def _rounds(report: Report) -> str:
    rows = [
        (
            str(each.number),
            each.side,
            f"{each.turns_per_second:.1f}",
            f"{each.decision_to_done.p50_ms:.1f}",
            f"{each.decision_to_done.p99_ms:.1f}",
        )
        for each in report.rounds
    ]
    return render_table(
        ("round", "side", f"turns/s at {report.settings.concurrency}", "p50 ms at 1", "p99 ms at 1"), rows
    )


def _figures(report: Report, hand: Medians, ours: Medians) -> str:
    (size, our_size), (memory, our_memory) = report.sizes, report.memory
    pairs: tuple[tuple[str, float, float, str], ...] = (
        (f"turns/s at {report.settings.concurrency}, median", hand.turns_per_second, ours.turns_per_second, ".1f"),
        ("decision to done p50 at 1, ms", hand.p50_ms, ours.p50_ms, ".1f"),
        ("decision to done p99 at 1, ms", hand.p99_ms, ours.p99_ms, ".1f"),
        ("processor a turn, worker and client, ms", hand.own_cpu_ms, ours.own_cpu_ms, ".1f"),
        ("processor a turn, server, ms", hand.server_cpu_ms, ours.server_cpu_ms, ".1f"),
        ("events, automatic turn", size.events_automatic, our_size.events_automatic, ".0f"),
        ("events, human turn", size.events_human, our_size.events_human, ".0f"),
        ("history bytes, automatic turn", size.bytes_automatic, our_size.bytes_automatic, ".0f"),
        ("history bytes, human turn", size.bytes_human, our_size.bytes_human, ".0f"),
        ("kB a suspended turn", memory.kb_per_turn, our_memory.kb_per_turn, ".1f"),
    )
    rows = [(name, f"{a:{style}}", f"{b:{style}}", f"{b / a:.2f}" if a else "") for name, a, b, style in pairs]
    rows += [
        ("judging one call, p50 ms", "", f"{report.gates.judge_p50_ms:.2f}", ""),
        ("one ticket claimed and recorded, p50 ms", "", f"{report.gates.ticket_p50_ms:.2f}", ""),
        ("catalog of 10,000 tools, s", "", f"{report.registry.build_s:.2f}", ""),
        ("gates of 20 calls against 1,000 tools, p50 ms", "", f"{report.registry.batch_p50_ms:.2f}", ""),
        ("decisions that went as signals", "", str(report.decisions_sent_as_signals), ""),
    ]
    return render_table(("figure", hand.side, ours.side, "ratio"), rows)


def _verdict(report: Report) -> str:
    rows = [
        (each.name, f"{each.measured:.2f}", f"{each.bound} {each.target:g}", "ok" if each.ok else "missed")
        for each in report.checks
    ]
    return render_table(("target", "measured", "wanted", ""), rows)


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
