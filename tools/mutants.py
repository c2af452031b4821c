"""`make mutants`: changes the deciding areas in every small way, and checks that a test or the type checker notices.

Each area is copied to its own directory under `build/mutants/`, with directories instead of links: mutmut names a
mutant by its path, so path and import name must agree. A mutant that mypy rejects never passes `make lint`, and counts
neither as killed nor as survived. The score is killed / (killed + survived), where a mutant that reaches the time limit
(an endless loop) counts as killed.

    python -m tools.mutants                  all areas, one after the other. Exits 1 below 90 %
    python -m tools.mutants approvals gates  these areas only
    python -m tools.mutants --again ...      survivors of the last run and changed code, with the present tests
    python -m tools.mutants --seconds 20 ... each mutant against 20 seconds of tests instead of 12
    python -m tools.mutants --report ...     the numbers of the last run, without a run
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutants"
PACKAGES = {"signoff": ROOT / "src" / "signoff", "signoff_client": ROOT / "clients" / "python" / "signoff_client"}
READ = ("docs", "examples", "tests", "tools")
NEEDED = 90.0
KILLED_BY_TYPES = 37
KILLED = {1, 3}
TIMED_OUT = {36, -24, -9}
SKIPPED = {34, None}
UNWANTED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@dataclass(frozen=True)
class Area:
    """The code to mutate, and the tests that must notice. Paths are relative to the package and `tests`.

    `left_out` are tests that count steps or seconds, which take longer among mutants than all others together, and
    tests in directories that do not concern the mutated code.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    package: str = "signoff"


AREAS = {
    "approvals": Area(("approvals/*.py",), ("approvals",)),
    "gates": Area(
        ("registry/gates/*.py",),
        (
            *(
                f"registry/test_{each}.py"
                for each in (
                    *("gates", "gate_words", "tool_view", "actor_filters", "gate_conditions", "checking", "tenants"),
                    *("inventory", "shadows", "scopes", "secret_arguments", "grant_match", "gate_trace"),
                    *("judged_call", "actor_bounds", "approver_coverage", "call_parts", "context_layers"),
                    "resolution_trace",
                )
            ),
            *("activities/test_grant_use.py", "activities/test_gate_activity.py"),
        ),
    ),
    "activities": Area(
        tuple(
            f"activities/{each}.py"
            for each in (
                *("run_once", "run_right", "run_rules", "run_handler"),
                *("gate_activity", "answers_activity", "outcome_activity"),
                *("call_journal", "grant_use", "capability_backends", "usage_check"),
                *("caller_check", "question_writer", "store_identity"),
                *("detail_cards", "hooks/hook_caller", "hooks/permissions"),
                *("hooks/policy_handlers", "hooks/tool_hooks", "results/result_processor"),
            )
        ),
        ("activities",),
        ("activities/mcp",),
    ),
    "policy": Area(("policy/*.py",), ("policy",)),
    "external": Area(
        ("workflows/external_permit.py", "plugins/aap/approval_request.py", "plugins/aap/request_body.py"),
        (
            *("workflows/test_external_permit.py", "plugins/aap/test_approval_request.py"),
            "plugins/aap/test_request_body.py",
        ),
    ),
    "client": Area(
        ("messages.py", "status.py", "exchange.py", "temporal/messages.py"),
        tuple(f"clients/test_{each}.py" for each in ("messages", "status", "exchange", "temporal_messages")),
        package="signoff_client",
    ),
    "channels": Area(
        (
            "channels/inbound/target.py",
            "channels/answer_text/answer_parser.py",
            "channels/answer_text/answer_tokens.py",
        ),
        tuple(
            f"channels/test_{each}.py"
            for each in ("target", "answer_tokens", "answer_parser", "utterances", "answer_set")
        ),
        ("channels/test_answer_parser.py::test_answer_is_parsed_in_linear_time",),
    ),
}
# Not imported: test runners have no mutmut, and mutmut reads its options on import.
_GENERATE = """
import os, sys
from mutmut import __main__ as mutmut
from mutmut.mutation.trampoline import set_mutant_under_test

os.makedirs("mutants", exist_ok=True)
set_mutant_under_test("mutant_generation")
mutmut.copy_src_dir()
mutmut.copy_also_copy_files()
mutmut.create_mutants(int(sys.argv[1]))
"""
_CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only}
also_copy = {copied}
use_git_change_detection = false
track_dependencies = false
"""


def prepare_copy(name: str) -> Path:
    place = BUILD / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    copy_code(name, place)
    return place


def copy_code(name: str, place: Path) -> None:
    area = AREAS[name]
    places = {each: ROOT / each for each in READ} | {f"src/{each}": package for each, package in PACKAGES.items()}
    for target, source in places.items():
        shutil.copytree(source, place / target, ignore=UNWANTED, dirs_exist_ok=True)
    only = [f"src/{area.package}/{source}" for source in area.sources]
    text = _CONFIG.format(only=json.dumps(only), copied=json.dumps([*READ, "pyproject.toml"]))
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + text)


def refresh(name: str) -> Path:
    """Killed mutants are not tried again."""
    place = BUILD / name
    for tests in (place / "tests", place / "mutants" / "tests"):
        shutil.rmtree(tests)
    copy_code(name, place)
    for path in metas(place):
        meta = json.loads(path.read_text())
        tried = meta["exit_code_by_key"]
        tried |= {mutant: None for mutant, code in tried.items() if _kind(code) == "survived"}
        path.write_text(json.dumps(meta))
    return place


def metas(place: Path) -> list[Path]:
    return sorted((place / "mutants" / "src").rglob("*.py.meta"))


def generate(place: Path, children: int) -> None:
    """Unchanged files stay."""
    subprocess.run([sys.executable, "-c", _GENERATE, str(children)], cwd=place, stdout=subprocess.DEVNULL, check=True)


def reject(name: str, place: Path) -> None:
    area, folder = AREAS[name], place / "mutants"
    only = sorted({path for source in area.sources for path in folder.glob(f"src/{area.package}/{source}")})
    errors: dict[Path, list[int]] = {}
    for line in _types(folder, only).splitlines():
        error = json.loads(line) if line.startswith("{") else {}
        if error.get("severity") == "error":
            errors.setdefault(folder / error["file"], []).append(error["line"])
    for path, lines in errors.items():
        if path.with_name(f"{path.name}.meta").exists():
            _mark(path, lines)


def _mark(path: Path, lines: list[int]) -> None:
    meta_path = path.with_name(f"{path.name}.meta")
    meta = json.loads(meta_path.read_text())
    module = ".".join(path.with_suffix("").parts[path.parts.index("src") + 1 :]).removesuffix(".__init__")
    for function, (first, last) in spans(path).items():
        mutant = f"{module}.{function}"
        # No mutant contains the lines of the original function.
        if mutant in meta["exit_code_by_key"] and any(first <= line <= last for line in lines):
            meta["exit_code_by_key"][mutant] = KILLED_BY_TYPES
    meta_path.write_text(json.dumps(meta))


def spans(path: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = json.loads(path.with_name(f"{path.name}.spans").read_text())["spans"]
    return found


def _types(folder: Path, only: list[Path]) -> str:
    """Return the report as JSON lines."""
    # mypy takes minutes over so many copies and caches no file with errors. Ask only once about the same code.
    result = BUILD / f".types-{_digest(folder)}"
    if not result.exists():
        names = [str(path.relative_to(folder / "src").with_suffix("")).removesuffix("/__init__") for path in only]
        modules = [option for each in names for option in ("-m", each.replace("/", "."))]
        cache = str(BUILD / ".mypy_cache")
        command = [sys.executable, "-m", "mypy", "--output", "json", "--cache-dir", cache, *modules]
        result.write_text(subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False).stdout)
    return result.read_text()


def _digest(folder: Path) -> str:
    result = hashlib.sha256()
    for path in sorted((folder / "src").rglob("*.py")):
        result.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return result.hexdigest()[:16]


def try_mutants(name: str, place: Path, children: int, seconds: float) -> None:
    """Run each untried mutant for at most `seconds`, see `mutant_runs`."""
    folder, area = place / "mutants", AREAS[name]
    paths = [str(Path(__file__).parent), *(str(folder / each) for each in ("tests", "src"))]
    command = [sys.executable, "-m", "pytest", "-q", "-s", "--rootdir=.", "-p", "mutant_runs"]
    command += ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    command += [f"--mutant-children={children}", f"--mutant-seconds={seconds:g}"]
    command += [f"--deselect=tests/{each}" for each in area.left_out]
    command += [f"tests/{each}" for each in area.tests]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTEST_TIMEOUT": "60"} | (
        # Keep the tests' own stores off the disk.
        {"TMPDIR": "/dev/shm"} if Path("/dev/shm").is_dir() else {}
    )
    subprocess.run(command, cwd=folder, env=os.environ | variables, stdin=subprocess.DEVNULL, check=False)


@dataclass(frozen=True)
class Tally:
    """The results of one area's mutants. `survivors` are (file, name of the mutant)."""

    counts: Counter[str]
    survivors: tuple[tuple[str, str], ...]

    @property
    def score(self) -> float:
        """Percent of killed mutants among valid programs; 100 without any."""
        killed = self.counts["killed"] + self.counts["timed out"]
        tried = killed + self.counts["survived"]
        return 100.0 * killed / tried if tried else 100.0


def count(place: Path) -> Tally:
    counts: Counter[str] = Counter()
    survivors: list[tuple[str, str]] = []
    for meta in metas(place):
        for name, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            kind = _kind(code)
            counts[kind] += 1
            if kind in ("survived", "untried"):
                survivors.append((str(Path(*meta.relative_to(place / "mutants" / "src").parts[1:]))[:-5], name))
    return Tally(counts, tuple(survivors))


def _kind(code: int | None) -> str:
    if code in SKIPPED:
        return "untried"
    if code in KILLED:
        return "killed"
    if code in TIMED_OUT:
        return "timed out"
    # Any other end of a run proves nothing, so it counts as survived.
    return "typed" if code == KILLED_BY_TYPES else "survived"


def describe(place: Path, survivors: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Yield each survivor's file and name, then its removed and added lines."""
    for file, name in survivors:
        mutant = name.rpartition(".")[2]
        path = next((place / "mutants" / "src").glob(f"*/{file}"))
        lines, found = path.read_text().splitlines(), spans(path)
        original = f"{mutant.partition('__mutmut_')[0]}__mutmut_orig"
        before, after = (lines[first - 1 : last] for first, last in (found[original], found[mutant]))
        yield f"{file} {mutant}"
        for line in difflib.ndiff(*([re.sub(r"__mutmut_\w+", "", each) for each in side] for side in (before, after))):
            if line[:1] in ("-", "+"):
                yield f"    {line[0]}{line[2:]}"


def main() -> int:
    """Return 0 if every area reached the score."""
    parser = argparse.ArgumentParser(description="mutation tests of the areas that decide")
    parser.add_argument("areas", nargs="*", help=f"any of {', '.join(AREAS)}; all by default")
    parser.add_argument("--again", action="store_true", help="try survivors of the last run against the present tests")
    parser.add_argument("--report", action="store_true", help="show the last run only")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="mutants tried at a time")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long the tests of one mutant take, at most")
    given = parser.parse_args()
    unknown = [name for name in given.areas if name not in AREAS]
    if unknown:
        parser.error(f"there is no area {', '.join(unknown)}; there are {', '.join(AREAS)}")
    chosen = given.areas or list(AREAS)
    for name in chosen if not given.report else ():
        place = refresh(name) if given.again else prepare_copy(name)
        generate(place, given.children)
        reject(name, place)
        try_mutants(name, place, given.children, given.seconds)
    return report(chosen)


def report(chosen: list[str]) -> int:
    low = False
    for name in chosen:
        place = BUILD / name
        tally = count(place)
        listed = "\n".join(describe(place, tally.survivors))
        (place / "survivors.txt").write_text(listed + "\n")
        untried = tally.counts["untried"]
        low = low or tally.score < NEEDED or untried > 0 or not tally.counts["killed"]
        print(
            f"{name:<11} {tally.score:5.1f} %   killed {tally.counts['killed']}, stopped by the time limit "
            f"{tally.counts['timed out']}, survived {tally.counts['survived']}, rejected by the type checker "
            f"{tally.counts['typed']}" + (f", not tried {untried}" if untried else "")
        )
        print(f"{'':<11} survivors: {(place / 'survivors.txt').relative_to(ROOT)}")
    print(f"needed: {NEEDED:.0f} % in each area")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
