import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.bench.scale.week import DayReport, grown

ROOT = Path(__file__).parents[2]
FLAT = ("questions", "answers", "tickets", "blobs", "blob_sessions", "deliveries")
"""The rows that each turn leaves until they are removed."""


def play_days(folder: Path, turns: int, days: int) -> list[dict[str, Any]]:
    file = folder / "week.json"
    sizes = ("--turns-a-day", str(turns), "--days", str(days))
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.scale.week", *sizes, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert file.exists(), done.stderr[-3000:]
    reports: list[dict[str, Any]] = json.loads(file.read_text())["days"]
    return reports


@pytest.mark.timeout(600)
def test_day_of_traffic_is_played(tmp_path: Path) -> None:
    (day,) = play_days(tmp_path, turns=10, days=1)
    assert all(day["rows"][table] for table in ("questions", "answers", "tickets"))
    assert day["executions"] > 0
    assert day["delivered"] > 0


@pytest.mark.rehearsal
@pytest.mark.timeout(600)
def test_four_days_of_traffic_leave_no_more_rows_than_three(tmp_path: Path) -> None:
    days = play_days(tmp_path, turns=10, days=4)
    first, second, third, fourth = ({table: day["rows"][table] for table in FLAT} for day in days)
    assert second["tickets"] == 2 * first["tickets"] > 0
    for table in ("questions", "answers", "tickets"):
        assert fourth[table] == third[table] == second[table] > 0
    for table in ("blobs", "blob_sessions"):
        assert fourth[table] == third[table] == second[table] > 0
    # A request that ends before its card is sent has none: there is at most one for each question.
    assert 0 < fourth["deliveries"] <= fourth["questions"]
    assert days[3]["executions"] == days[2]["executions"] > 0
    assert all(day["delivered"] for day in days)


def test_growing_figures_are_named() -> None:
    flat: dict[str, Any] = {
        "seconds": 1.0, "resident_kb": 1000, "files": 10, "threads": 5, "tasks": 20, "store_kb": 100,
        "temporal_kb": 100, "executions": 40, "delivered": 9,
    }  # fmt: skip
    rows = {"tickets": 100, "blobs": 50, "audit_records": 100}
    days = [DayReport(day=number, rows=rows, **flat) for number in range(1, 7)]
    more = rows | {"tickets": 120, "blobs": 10, "audit_records": 900}
    assert grown([*days, DayReport(day=7, rows=rows, **flat)]) == ()
    last = DayReport(day=7, rows=more, **flat | {"tasks": 40, "threads": 14})
    assert grown([*days, last]) == ("threads: 5 to 14", "tasks: 20 to 40", "tickets: 100 to 120")
