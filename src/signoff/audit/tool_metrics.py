"""Computes each tool's metrics from the audit log: runs, failures, time and cost.

Failures are counted by code.
"""

from collections import Counter, defaultdict
from collections.abc import AsyncIterable

from pydantic import Field

from signoff.audit.record import Record
from signoff.contracts.frozen_model import FrozenModel

ENDINGS = ("outcome", "in_doubt")
"""The kinds of records with the outcome of a run."""


class ToolMetrics(FrozenModel):
    """The metrics of one tool. Calls that never ran, such as denied ones, are not counted."""

    tool: str
    runs: int = 0
    ok: int = 0
    """The number of runs that ended `ok`."""
    failed: dict[str, int] = Field(default_factory=dict)
    """The number of other runs, by code."""
    mean_ms: float = 0.0
    """The mean time of all runs, in milliseconds."""
    longest_ms: int = 0
    """The longest time of all runs, in milliseconds."""
    cost: float = 0.0
    """The cost of all runs, in USD."""


async def tool_metrics(records: AsyncIterable[Record]) -> list[ToolMetrics]:
    """Sorted by name. Raises `Refused` for a changed record."""
    codes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    times: defaultdict[str, list[int]] = defaultdict(list)
    costs: defaultdict[str, float] = defaultdict(float)
    async for record in records:
        facts = record.facts
        # The result of a tool's probe has the same kind but is no run.
        if record.kind not in ENDINGS or "code" not in facts:
            continue
        tool = str(facts["tool"])
        codes[tool][str(facts["code"])] += 1
        times[tool].append(int(facts["duration_ms"]))
        costs[tool] += float(facts["cost"])
    return [_of(tool, codes[tool], times[tool], costs[tool]) for tool in sorted(codes)]


def _of(tool: str, codes: Counter[str], times: list[int], cost: float) -> ToolMetrics:
    return ToolMetrics(
        tool=tool,
        runs=len(times),
        ok=codes["ok"],
        failed={code: codes[code] for code in sorted(codes) if code != "ok"},
        mean_ms=round(sum(times) / len(times), 1),
        longest_ms=max(times),
        cost=cost,
    )
