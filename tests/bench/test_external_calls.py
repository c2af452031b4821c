import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(320)
ROOT = Path(__file__).parents[2]
KINDS = ("run by Signoff", "permitted and used, one request", "permitted, used and reported, two requests")


def test_tiny_run_covers_every_kind_with_its_verdict(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "tools.bench.external_calls", "--rounds", "2", "--calls", "2", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text(encoding="utf-8"))
    taken = [(each["number"], each["kind"]) for each in report["figures"]]
    assert taken == [(number, kind) for number in (1, 2) for kind in KINDS]
    assert all(each["hand_p50_ms"] > 0 and each["p50_ms"] > 0 for each in report["figures"])
    assert {each["side"] for each in report["processor"]} == {"hand-written", "signoff"}
    # A busy machine may add a workflow task, never take one away.
    assert (report["events_run"] >= 12, report["events_used"] >= 15, report["events_asked"] >= 27) == (True,) * 3
    for kind in KINDS:
        ratios = [each["p50_ms"] / each["hand_p50_ms"] for each in report["figures"] if each["kind"] == kind]
        line = next(each for each in done.stdout.splitlines() if each.startswith(f"| {kind}, ratio "))
        assert line.rstrip(" |").endswith("ok" if sum(ratios) / 2 <= 1.3 else "missed"), (line, ratios)
