import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from documents import ROOT, names, tables
from tables import table

from signoff.telemetry.metric_table import METRICS

FOLDER: Final = ROOT / "deploy" / "observability"
CASES: Final = Path(__file__).with_name("alert_cases.yaml")
SDK: Final = {
    "temporal_worker_task_slots_available",
    "temporal_activity_schedule_to_start_latency_seconds",
    "temporal_workflow_task_execution_latency_seconds",
}
"""The SDK's metrics in use. `tests/cli/test_cli_dev.py` checks that they are exposed."""
PROCESS: Final = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
OF_EVERY_SCRAPE: Final = {"instance", "job", "le"}
_METRIC: Final = re.compile(r"\b((?:signoff|temporal|process)_[a-z_]+)(?:\{([^}]*)\})?")
_LABEL: Final = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
_BY: Final = re.compile(r"\bby \(([^)]*)\)")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [each for each in json.loads((FOLDER / "dashboard.json").read_text())["panels"] if each["type"] != "row"]


def expressions() -> list[str]:
    shown = [target["expr"].replace("$__rate_interval", "1m") for panel in panels() for target in panel["targets"]]
    return [*(rule["expr"] for rule in rules()), *shown]


def series() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    suffixes = {
        "counter": ("_total",),
        "info": ("_info",),
        "gauge": ("",),
        "histogram": ("_bucket", "_count", "_sum"),
        "gauge_histogram": ("_bucket", "_gcount", "_gsum"),
    }
    for name, row in METRICS.items():
        found |= dict.fromkeys((f"{name}{suffix}" for suffix in suffixes[row.kind]), row.labels)
    return found


def mistakes(expression: str) -> list[str]:
    own, found = series(), []
    labels: set[str] = set(OF_EVERY_SCRAPE)
    for name, matchers in _METRIC.findall(expression):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        if name not in own and base not in SDK and name not in PROCESS:
            found.append(name)
            continue
        if base in SDK:
            labels |= {"task_queue", "worker_type", "activity_type"}
        labels |= set(own.get(name, ()))
        allowed = {*own.get(name, ()), *OF_EVERY_SCRAPE}
        found += [f"{name}: {label}" for label in _LABEL.findall(matchers) if name in own and label not in allowed]
    grouped = {label.strip() for labels_by in _BY.findall(expression) for label in labels_by.split(",")}
    return found + sorted(grouped - labels)


@table("expression", *expressions())
def test_every_used_metric_and_label_is_exposed(expression: str) -> None:
    assert _METRIC.search(expression)
    assert mistakes(expression) == []


@table(
    ("expression", "wrong"),
    ("max(signoff_waiting)", ["signoff_waiting"]),
    ("sum(signoff_decisions)", ["signoff_decisions"]),
    ('signoff_decisions_total{tool="pay"}', ["signoff_decisions_total: tool"]),
    ("sum by (tool) (signoff_decisions_total)", ["tool"]),
    ("temporal_nothing_total", ["temporal_nothing_total"]),
)
def test_missing_metric_or_label_is_noticed(expression: str, wrong: list[str]) -> None:
    assert mistakes(expression) == wrong


def test_every_metric_is_shown_or_watched() -> None:
    every = " ".join(expressions())
    assert [name for name in METRICS if name not in every] == []


def test_every_panel_has_title_description_and_unit() -> None:
    found = panels()
    assert all(each["title"] and each["description"] and each["fieldConfig"]["defaults"]["unit"] for each in found)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in found]
    assert len(set(places)) == len(places)
    assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in found)


def test_document_names_every_alert() -> None:
    listed = {name for row in tables("docs/monitoring.md", "Alerts") for name in names(row[0]) if "Signoff" in name}
    assert listed == {rule["alert"] for rule in rules()}


def test_each_alert_has_a_raised_and_a_silent_case() -> None:
    raised: dict[str, set[bool]] = {}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for each in case["alert_rule_test"]:
            raised.setdefault(each["alertname"], set()).add(bool(each["exp_alerts"]))
    assert raised == {rule["alert"]: {True, False} for rule in rules()}


@pytest.mark.promtool
def test_prometheus_raises_the_alerts_of_the_cases() -> None:
    ran = subprocess.run(["promtool", "test", "rules", str(CASES)], capture_output=True, text=True, check=False)
    assert (ran.returncode, "SUCCESS" in ran.stdout) == (0, True), ran.stdout + ran.stderr


@pytest.mark.promtool
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    recording = [{"record": f"each:{number}", "expr": expr} for number, expr in enumerate(expressions())]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": recording}]}))
    ran = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"{len(recording)} rules found" in ran.stdout
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": [{"record": "x", "expr": "sum by (a"}]}]}))
    assert subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, check=False).returncode == 1
