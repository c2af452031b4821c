import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def load_report() -> Any:
    spec = importlib.util.spec_from_file_location("scale_report", ROOT / "tools" / "bench" / "scale" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


report_module = load_report()


def run(folder: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    file = folder / "report.json"
    command = [sys.executable, "-m", "tools.bench.scale", *arguments, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.rehearsal
def test_commands_are_measured_without_a_server(tmp_path: Path) -> None:
    printed, report = run(tmp_path, "commands", "--repetitions", "1")
    assert {"`signoff --help`, processor, s", "`signoff tools list`, processor, s"} < report["figures"].keys()
    assert all(each["middle"] > 0 for each in report["figures"].values())
    assert "`signoff policy check`, processor, s" in printed


@pytest.mark.rehearsal
@pytest.mark.timeout(240)
def test_waiting_turns_are_measured_at_each_number(tmp_path: Path) -> None:
    printed, report = run(tmp_path, "waiting", "--turns", "2", "4", "6", "--repetitions", "1")
    assert [each["turns"] for each in report["points"]] == [2, 4, 6]
    names = [list(each["figures"]) for each in report["points"]]
    assert names[0] == names[1] == names[2] == list(report["lines"])
    for point in report["points"]:
        for name, each in point["figures"].items():
            assert 0 < each["least"] <= each["middle"] <= each["most"], name
        assert point["figures"]["memory of the worker, MB"]["least"] > 50
    assert all(f"| {name} " in printed for name in names[0])


@pytest.mark.rehearsal
@pytest.mark.timeout(240)
def test_decisions_at_a_rate_are_all_completed(tmp_path: Path) -> None:
    _, report = run(tmp_path, "decisions", "--a-minute", "120", "--minutes", "0.05")
    figures = {name: each["middle"] for name, each in report["figures"].items()}
    assert 0 < figures["receipt, ms, p50"] <= figures["done, ms, p50"] <= figures["done, ms, p99"]
    assert 0 < figures["decisions done a minute"] < 121 * 6 / 5


@pytest.mark.timeout(240)
def test_burst_of_starts_ends_in_waiting_turns(tmp_path: Path) -> None:
    _, report = run(tmp_path, "burst", "--starts", "6")
    figures = {name: each["middle"] for name, each in report["figures"].items()}
    assert 0 < figures["accepted after, s"] <= figures["waiting after, s"]


@pytest.mark.timeout(240)
def test_due_cards_are_claimed_and_sent_at_each_number(tmp_path: Path) -> None:
    _, report = run(tmp_path, "cards", "--cards", "200", "400", "--rounds", "1", "--seconds", "0.5")
    assert [each["turns"] for each in report["points"]] == [200, 400]
    for point in report["points"]:
        figures = {name: each["middle"] for name, each in point["figures"].items()}
        assert 0 < figures["claim of 64, p50, ms"] <= figures["claim of 64, p95, ms"]
        assert figures["processor a card, ms"] > 0


@pytest.mark.timeout(240)
def test_history_is_searched_for_each_share_of_readable_requests(tmp_path: Path) -> None:
    _, report = run(tmp_path, "history", "--questions", "300")
    assert {f"frequent word, reader of {share}, ms" for share in ("all", "98 %", "2 %", "0")} < report["figures"].keys()
    assert all(each["middle"] > 0 for each in report["figures"].values())


def test_fitted_line_matches_exact_points_and_averages_others() -> None:
    exact = report_module.fit_line([(1, 5), (3, 9), (10, 23)])
    assert (exact.at, exact.each) == pytest.approx((3, 2))
    assert exact.value(100_000) == pytest.approx(200_003)
    other = report_module.fit_line([(0, 0), (1, 2), (2, 1)])
    assert (other.at, other.each) == pytest.approx((0.5, 0.5))


def test_growth_is_the_last_figure_divided_by_the_first() -> None:
    module = report_module
    figures = {number: {"size, MB": module.spread([1, number])} for number in (2, 4, 6)}
    points = tuple(module.Point(turns=number, figures=each) for number, each in figures.items())
    where = {"date": "2026-11-24", "engine": 1, "cpus": 2, "store": "SQLite"}
    report = module.ScaleReport(experiment="waiting", points=points, **where)
    assert report.growth("size, MB") == pytest.approx(3.5 / 1.5)
    assert "| size, MB | 1.5 | 2.5 | 3.5 | 1 to 6              | 2.33   | 50,000 " in module.render(report)
