import asyncio
from datetime import date

from cli_kit import Cli, waiting_request
from polling import pauses
from rich.console import Console

from signoff.cli.terminal.insight_tables import insight_lines
from signoff.contracts.clock import system_clock
from signoff.contracts.responses import (
    ApproverCoverage,
    DayFigures,
    DecisionRate,
    EarlierFigures,
    Insights,
    InsightWarning,
    WaitingFigures,
)


async def test_figures_are_printed_and_given_as_json(served_cli: Cli) -> None:
    card = await waiting_request(served_cli, "pay 2346")
    assert (await served_cli("approve", card["code"])).code == 0
    for pause in pauses():
        found = await served_cli("decisions", "stats", "--json")
        if found.data["approved"]:
            break
        await asyncio.sleep(pause)
    assert (found.data["days"], found.data["every"]) == (30, True)
    assert [each["name"] for each in found.data["by_channel"]] == ["cli"]
    shown = await served_cli("decisions", "stats", "--days", "7")
    assert (shown.code, shown.err) == (0, "")
    assert "Figures of all requests, last 7 days" in shown.out
    assert "Decisions by tool" in shown.out


async def test_unknown_span_is_refused(served_cli: Cli) -> None:
    refused = await served_cli("decisions", "stats", "--days", "365")
    assert refused.code == 2
    assert "365" in refused.err


def test_warnings_holes_and_hostile_names_are_readable() -> None:
    found = Insights(
        days=30,
        every=True,
        waiting=WaitingFigures(count=1_000, more=True, expiring=2, oldest=7_200),
        approved=198,
        denied=2,
        p50=2,
        p95=300,
        by_day=(
            DayFigures(day=date(2026, 3, 1), approved=120, unanswered=1),
            DayFigures(day=date(2026, 3, 2)),
            DayFigures(day=date(2026, 3, 3), approved=78, denied=2),
        ),
        before=EarlierFigures(approved=100),
        more=True,
        by_tool=(DecisionRate(name="pay\x1b[2J", approved=198, denied=2),),
        warnings=(InsightWarning(kind="fast", tool="pay", percent=99, count=200, seconds=3),),
        coverage=(ApproverCoverage(tool="pay", approvers=(), holes=("needs 2 people to approve",)),),
    )
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(*insight_lines(found, system_clock()), sep="\n")
    words = capture.get()
    assert "Waiting now: 1,000+, Oldest: 2 h, Deadline within 24 h: 2" in words
    assert "Decided: 198 approved, 2 denied, 0 expired (100 % more than in the same period 30 days earlier)" in words
    assert "count only the newest 20,000 requests" in words
    days = [line.split() for line in words.splitlines() if " Mar " in line]
    assert days == [
        ["Sun", "1", "Mar", "█" * 24 + "·", "120", "0", "1"],
        ["Tue", "3", "Mar", "█" * 16 + "▒", "78", "2", "0"],
    ]
    assert "99 % of 200 requests for pay were approved within 3 s" in words
    assert "! pay needs 2 people to approve" in words
    assert "\x1b" not in words
