"""Lists the components of a release, and those with known vulnerabilities."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tools.release.environments import site_packages

OURS: Final = "signoff"
_SHOWN: Final = 3


class AdvisoryFault(Exception):
    """Explains in one sentence which component must not be released."""


def write_bill(root: Path, programs: Path, path: Path, epoch: int) -> None:
    """Write CycloneDX, without identifying the machine."""
    for where in site_packages(programs).glob(f"{OURS}-*.dist-info/direct_url.json"):
        # The directory that held the wheel.
        where.unlink()
    command = (
        *(sys.executable, "-m", "cyclonedx_py", "environment", str(programs / "python")),
        *("--pyproject", str(root / "pyproject.toml"), "--mc-type", "library"),
        *("--output-reproducible", "--output-file", str(path)),
    )
    variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(command, env=variables, check=True, capture_output=True, text=True)


def audit_problem(programs: Path) -> str:
    """Return why the index could not be asked, or "". Raises `AdvisoryFault` if a component has an advisory."""
    command = (
        *(sys.executable, "-m", "pip_audit", "--path", str(site_packages(programs))),
        *("--format", "json", "--progress-spinner", "off"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return judge_audit(json.loads(done.stdout))
    except ValueError:
        words = (done.stderr or done.stdout).strip().splitlines()
        return f"advisories could not be looked up: {words[-1] if words else 'pip-audit said nothing'}"


def judge_audit(found: dict[str, list[dict[str, object]]]) -> str:
    """Return which components pip-audit could not look up, or "". Raises `AdvisoryFault`.

    pip-audit ends with exit code 0 even if the index answered for no component.
    """
    components = [each for each in found["dependencies"] if each["name"] != OURS]
    unsafe = [f"{each['name']} {each['version']}" for each in components if each.get("vulns")]
    if unsafe:
        raise AdvisoryFault(
            f"there are advisories about {', '.join(unsafe)}: raise them in constraints.txt and run `make lock`"
        )
    unseen = [str(each["name"]) for each in components if "skip_reason" in each]
    if not components:
        return "advisories were looked up for nothing at all"
    if unseen:
        names = ", ".join(unseen[:_SHOWN]) + (", ..." if len(unseen) > _SHOWN else "")
        return f"advisories could not be looked up for {len(unseen)} of {len(components)} components ({names})"
    return ""
