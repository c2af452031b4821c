"""Makes a release: `python -m tools.release [--rehearse] [--unaudited] [--python VERSION]... [--out FOLDER]`."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from signoff.contracts.names import ENGINE, VERSION
from tools.release.artifacts import BuildFault, build, write_checksums
from tools.release.components import AdvisoryFault, audit_problem, write_bill
from tools.release.environments import PYTHONS, TrialFault, find_pythons, install, try_client, try_installed
from tools.release.locks import FOLDER
from tools.release.readiness import commit_id, commit_time, find_problems

ROOT: Final = Path(__file__).resolve().parents[2]
CLIENT: Final = "clients/python"
"""The source of the client's distribution."""


def main() -> int:
    """Print in one sentence why there is no release."""
    options = _options()
    problems = find_problems(ROOT, datetime.now(UTC).date())
    for each in problems:
        print(f"release: {each}", file=sys.stderr)
    if problems and not options.rehearse:
        return 1
    pythons = find_pythons()
    chosen = options.python or list(pythons)
    if lacking := [version for version in chosen if version not in pythons]:
        print(f"release: there is no Python {', '.join(lacking)} here: install it, or leave it out", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="signoff-release-") as scratch:
            return _release(options, {version: pythons[version] for version in chosen}, Path(scratch))
    except (BuildFault, TrialFault, AdvisoryFault) as fault:
        print(f"release: {fault}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"release: `{error.cmd[0]}` ends with {error.returncode}: {error.stderr}", file=sys.stderr)
        return 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("--rehearse", action="store_true", help="continue although the version is not ready")
    parser.add_argument("--unaudited", action="store_true", help="continue without a check of advisories")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="try it with this one, not all there are")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "dist", help="the directory of the results, which is emptied first"
    )
    return parser.parse_args()


def _release(options: argparse.Namespace, pythons: dict[str, str], scratch: Path) -> int:
    out, epoch = options.out.absolute(), commit_time(ROOT)
    shutil.rmtree(out, ignore_errors=True)
    sdist, wheel = sorted(build(ROOT, scratch / "build", out, epoch), key=lambda file: file.suffix)
    _say(f"built {wheel.name} and {sdist.name}: the same bytes from a clone, without links and out of the sdist")
    client_sdist, client_wheel = sorted(
        build(ROOT, scratch / "build-client", out, epoch, CLIENT), key=lambda file: file.suffix
    )
    _say(f"built {client_wheel.name} and {client_sdist.name}, likewise")
    tried = _try_all(pythons, wheel, scratch)
    for version, python in pythons.items():
        try_client(python, client_wheel, scratch / f"client-{version}")
    _say("the client is installed alone, and runs nothing without a gateway")
    _say("installing the packages of the image, each file by its hash")
    programs = install(pythons[max(pythons, key=PYTHONS.index)], scratch / "all", wheel, FOLDER)
    bill = out / f"{wheel.name.split('-')[0]}-{VERSION}.cdx.json"
    write_bill(ROOT, programs, bill, epoch)
    _say(f"wrote {bill.name}: {len(json.loads(bill.read_text(encoding='utf-8'))['components'])} components")
    unaudited = audit_problem(programs)
    if unaudited:
        _say(unaudited)
        if not options.unaudited:
            remedy = "make the release where the index is reachable, or set UNAUDITED=1"
            print(f"release: {unaudited}: {remedy}", file=sys.stderr)
            return 1
    report = out / f"{wheel.name.split('-')[0]}-{VERSION}.release.json"
    found = {
        "version": VERSION,
        "engine": ENGINE,
        "commit": commit_id(ROOT),
        "rehearsal": options.rehearse,
        "tried_on": tried,
        "not_tried_on": [version for version in PYTHONS if version not in pythons],
        "advisories": unaudited or "none about any component",
    }
    report.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    checksums = write_checksums(out, (sdist, wheel, client_sdist, client_wheel, bill, report))
    _say(f"{out}: {', '.join(sorted(each.name for each in out.iterdir()))}; check with `sha256sum -c {checksums.name}`")
    return 0


def _try_all(pythons: dict[str, str], wheel: Path, scratch: Path) -> list[str]:
    tried = []
    for version, python in pythons.items():
        _try(f"Python {version}", python, wheel, scratch / version, links=True)
        tried.append(version)
    newest = max(pythons, key=PYTHONS.index)
    _try(f"Python {newest} where no link can be made", pythons[newest], wheel, scratch / "no-links", links=False)
    tried.append(f"{newest} without links")
    if absent := [version for version in PYTHONS if version not in pythons]:
        _say(f"not tried: Python {', '.join(absent)}, which is not here or was left out")
    return tried


def _try(name: str, python: str, wheel: Path, scratch: Path, *, links: bool) -> None:
    began = time.monotonic()
    try:
        try_installed(python, wheel, scratch, links=links)
    except TrialFault as fault:
        raise TrialFault(f"{name}: {fault}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _say(f"{name}: installed, and a first hour played, in {time.monotonic() - began:.0f} s")


def _say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    sys.exit(main())
