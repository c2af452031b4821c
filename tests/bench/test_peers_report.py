"""Tests of the comparison's report. The comparison itself needs packages of the extra `bench`."""

import pytest

from tools.bench.peers.report import (
    CPU,
    HUMAN_RATE,
    LANGGRAPH,
    MEASURES,
    P50,
    PYDANTIC,
    PYDANTIC_BARE,
    PeerRound,
    PeerSettings,
    PeersReport,
    render,
)
from tools.bench.report import Size, Where
from tools.bench.sides import BASELINE, SIGNOFF

HISTORIES = ((SIGNOFF, 33, 9_000), (BASELINE, 27, 2_700), (PYDANTIC, 29, 15_000), (PYDANTIC_BARE, 29, 15_000))
LEVEL = {SIGNOFF: 20.0, BASELINE: 20.0, PYDANTIC: 20.0, PYDANTIC_BARE: 20.0, LANGGRAPH: 20.0}


def round_of(number: int, side: str, human: float = 20.0, p50_ms: float = 50.0) -> PeerRound:
    return PeerRound(number=number, side=side, human=human, automatic=25.0, p50_ms=p50_ms, p95_ms=90.0, cpu_ms=30.0)


def report_of(*rounds: PeerRound) -> PeersReport:
    return PeersReport(
        date="2026-11-29",
        engine=1,
        where=Where(cpus=2, python="3.11.7", server="1.32.0", sdk="1.35.0"),
        versions={"langgraph": "1.2.24"},
        settings=PeerSettings(rounds=2, turns=10, latency_turns=10, concurrency=5),
        rounds=rounds,
        sizes=tuple(
            Size(side=side, events_automatic=23, events_human=events, bytes_automatic=5_000, bytes_human=size)
            for side, events, size in HISTORIES
        ),
    )


def one_round(**human: float) -> PeersReport:
    return report_of(*(round_of(1, side, human.get(side, rate)) for side, rate in LEVEL.items()))


def test_ratio_divides_figures_of_the_same_round() -> None:
    # The second round met twice the load: the ratio of the medians would differ.
    pairs = ((1, 40.0, 40.0), (2, 10.0, 20.0), (3, 15.0, 16.0))
    rounds = [
        round_of(number, side, rate)
        for number, *rates in pairs
        for side, rate in zip((SIGNOFF, BASELINE), rates, strict=True)
    ]
    found = report_of(*rounds).ratio(BASELINE, HUMAN_RATE)
    assert (found.middle, found.least, found.most) == (0.9375, 0.5, 1.0)


@pytest.mark.parametrize(("rate", "ok"), [(17.0, True), (16.9, False)])
def test_human_rate_of_85_percent_meets_the_target_beside_the_hand_written_workflow(rate: float, ok: bool) -> None:
    checks = {each.name: each.ok for each in one_round(**{SIGNOFF: rate}).checks}
    assert checks[f"human turns/s, over {BASELINE}"] is ok


@pytest.mark.parametrize(("p50_ms", "ok"), [(62.5, True), (63.0, False)])
def test_decision_of_125_percent_meets_the_target_beside_the_hand_written_workflow(p50_ms: float, ok: bool) -> None:
    rounds = [round_of(1, side, p50_ms=p50_ms if side == SIGNOFF else 50.0) for side in LEVEL]
    checks = {each.name: each.ok for each in report_of(*rounds).checks}
    assert checks[f"decision to done p50, ms, over {BASELINE}"] is ok


def test_langgraph_has_no_target() -> None:
    assert [each.name for each in one_round(**{LANGGRAPH: 900.0}).checks if LANGGRAPH in each.name] == []


def test_report_says_every_figure_in_which_signoff_is_behind() -> None:
    report = one_round(**{PYDANTIC: 25.0, LANGGRAPH: 40.0})
    timed = [each for each in report.behind if any(each.startswith(measure.name) for measure in MEASURES)]
    assert timed == [f"human turns/s, over {PYDANTIC}: 0.80", f"human turns/s, over {LANGGRAPH}: 0.50"]
    assert f"history bytes, human turn, over {BASELINE}: 3.33" in report.behind
    assert not [each for each in report.behind if each.startswith("history bytes, human turn, over pydantic")]
    assert all(f"- {each}" in render(report) for each in report.behind)


def test_table_shows_every_side_with_the_spread_of_its_rounds() -> None:
    rounds = [round_of(number, side, human=rate) for number, rate in ((1, 10.0), (2, 30.0)) for side in LEVEL]
    text = render(report_of(*rounds))
    head, row = (
        next(line for line in text.splitlines() if line.startswith(start)) for start in ("| median", "| human")
    )
    assert [cell.strip() for cell in head.split("|")[2:-1]] == list(LEVEL)
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["20.0 (10.0 to 30.0)"] * len(LEVEL)
    assert all(f"| {measure.name} " in text for measure in (HUMAN_RATE, P50, CPU))
