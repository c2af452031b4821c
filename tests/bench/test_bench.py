import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(320)
ROOT = Path(__file__).parents[2]
HAND, OURS = "hand-written", "signoff"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    file = tmp_path_factory.mktemp("bench") / "report.json"
    sizes = ("--rounds", "2", "--turns", "3", "--concurrency", "3", "--memory-turns", "4")
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench", *sizes, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text(encoding="utf-8"))


def test_every_round_of_both_sides_is_printed_and_reported(run: tuple[str, dict[str, Any]]) -> None:
    printed, report = run
    assert [(each["number"], each["side"]) for each in report["rounds"]] == [(1, HAND), (1, OURS), (2, HAND), (2, OURS)]
    for each in report["rounds"]:
        assert each["turns_per_second"] > 0
        assert each["own_cpu_ms"] > 0
        assert each["server_cpu_ms"] > 0
        assert 0 < each["decision_to_done"]["p50_ms"] <= each["decision_to_done"]["p99_ms"]
        assert f"round {each['number']}  {each['side']}" in printed
    for side in report["medians"]:
        rates = [each["turns_per_second"] for each in report["rounds"] if each["side"] == side["side"]]
        assert min(rates) <= side["turns_per_second"] <= max(rates)


def test_both_sides_do_the_same_work(run: tuple[str, dict[str, Any]]) -> None:
    _, report = run
    counted = {each["side"]: (each["events_automatic"], each["events_human"]) for each in report["sizes"]}
    assert counted == {HAND: (23, 27), OURS: (23, 33)}
    assert all(0 < each["bytes_automatic"] < each["bytes_human"] for each in report["sizes"])


def test_memory_and_gates_are_measured(run: tuple[str, dict[str, Any]]) -> None:
    _, report = run
    assert [each["side"] for each in report["memory"]] == [HAND, OURS]
    for each in report["memory"]:
        assert each["first_kb"] > 10_000
        assert each["kb_per_turn"] == pytest.approx((each["second_kb"] - each["first_kb"]) / 4)
    assert report["gates"]["judge_p50_ms"] > 0
    assert report["gates"]["ticket_p50_ms"] > 0


def test_verdicts_follow_from_the_figures(run: tuple[str, dict[str, Any]]) -> None:
    printed, report = run
    hand, ours = report["medians"]
    rate, latency, memory, automatic, human, size, build, batch = report["checks"]
    assert rate["measured"] == pytest.approx(ours["turns_per_second"] / hand["turns_per_second"])
    assert rate["ok"] is (rate["measured"] >= 0.8)
    assert latency["measured"] == pytest.approx(ours["p50_ms"] / hand["p50_ms"])
    assert latency["ok"] is (latency["measured"] <= 1.2)
    assert memory["ok"] is (report["memory"][1]["kb_per_turn"] <= 140)
    assert (automatic["ok"], human["ok"]) == (True, True)
    assert (size["measured"], size["target"]) == (report["sizes"][1]["bytes_human"], 9_000)
    assert (build["measured"], build["target"]) == (report["registry"]["build_s"], 2)
    assert (batch["measured"], batch["target"]) == (report["registry"]["batch_p50_ms"], 5)
    assert all(each["measured"] > 0 for each in (build, batch))
    for each in report["checks"]:
        verdicts = [
            line for line in printed.splitlines() if line.startswith(f"| {each['name']} ") and each["bound"] in line
        ]
        assert [line.rstrip(" |").endswith("ok" if each["ok"] else "missed") for line in verdicts] == [True]


def test_report_names_no_machine_and_no_path(run: tuple[str, dict[str, Any]]) -> None:
    _, report = run
    text = json.dumps(report)
    assert os.uname().nodename not in text
    assert str(ROOT) not in text
    assert "/" not in text.replace("turns/s", "")
