"""`make mutants`: break the deciding areas in every small way and see that some test, or the type checker, notices.

Each area is copied to a folder of its own under `build/mutants/`, where its links have become real folders (mutmut
names a mutant by its path, so path and import name have to agree). A mutant that mypy rejects never gets past
`make lint`; it counts neither as killed nor as survived. The score is killed / (killed + survived), where a mutant
that runs into the time limit (an endless loop) counts as killed.

    python tests/mutants.py                  all areas, one after the other; exits 1 below 90 %
    python tests/mutants.py approvals gates  these areas only
    python tests/mutants.py --again ...      what the last run did not kill and what changed since, by the present tests
    python tests/mutants.py --report ...     the numbers of the last run, without running anything
"""

import argparse
import hashlib
import json
import os
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
NEEDED = 90.0
KILLED_BY_TYPES = 37
KILLED = {1, 3}
TIMED_OUT = {36, -24, -9}
SKIPPED = {34, None}
# A store of each test's own is on no disk then; and an endless loop is one test's, not that of all together.
VARIABLES = {"PYTEST_TIMEOUT": "30"} | ({"TMPDIR": "/dev/shm"} if Path("/dev/shm").is_dir() else {})
UNWANTED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@dataclass(frozen=True)
class Area:
    """What is mutated, and the tests that have to notice. Paths are relative to the package and `tests`.

    `left_out` are tests that count steps or seconds: among mutants they take longer than all others together.
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
            *("registry/test_gates.py", "registry/test_gate_words.py", "registry/test_tool_view.py"),
            *("registry/test_actor_filters.py", "registry/test_gate_conditions.py"),
            *("registry/test_checking.py", "registry/test_tenants.py", "registry/test_inventory.py"),
            *("registry/test_shadows.py", "registry/test_scopes.py", "registry/test_secret_arguments.py"),
            *("registry/test_grant_match.py", "registry/test_gate_trace.py", "registry/test_local_decision.py"),
            *("activities/test_grant_use.py", "activities/test_gate_activity.py"),
        ),
    ),
    "activities": Area(
        tuple(
            f"activities/{each}.py"
            for each in (
                *("tool_activity", "run_rights", "refused_calls", "handler_execution"),
                *("permit_check", "gate_activity", "identify_activity", "outcome_activity"),
                *("call_journal", "grant_use", "capability_backends", "usage_check"),
                *("approval_reader", "caller_check", "stored_permit", "question_writer", "store_identity"),
                *("detail_cards", "handler_runner", "hooks/hook_caller", "hooks/permissions"),
                *("hooks/policy_handlers", "hooks/probes", "hooks/tool_hooks"),
                *("results/result_processor", "results/record_distribution"),
            )
        ),
        tuple(
            f"activities/{each}.py"
            for each in (
                *("test_permit_check", "test_voters", "test_signed_permits", "test_identify", "test_identify_signed"),
                *("test_identify_vouched", "test_gate_activity", "test_gate_questions", "test_tool_activity"),
                *("test_handler_runner", "test_outcome_activity", "test_call_journal", "test_grant_use"),
                *("test_frozen", "test_capability_backends", "test_tool_metrics", "test_usage_check"),
                *("hooks/test_policy_handlers", "hooks/test_probes", "hooks/test_tool_hooks"),
                *("hooks/test_selected_tools", "hooks/test_plugins", "results/test_record_distribution"),
                *("test_gate_names", "test_instants", "test_context_and_data", "test_tool_settings"),
                *("results/test_taken_updates",),
                *("results/test_result_processor", "results/test_read_rest_tool"),
                *(
                    "test_caller_check",
                    "test_stored_permit",
                    "test_detail_cards",
                    "hooks/test_permissions",
                    "hooks/test_hook_caller",
                ),
            )
        ),
    ),
    "policy": Area(("policy/*.py",), ("policy",)),
    "external": Area(
        ("workflows/external_permit.py", "gateway/aap/approval_request.py", "gateway/aap/request_body.py"),
        (
            *("workflows/test_external_permit.py", "gateway/aap/test_approval_request.py"),
            "gateway/aap/test_request_body.py",
        ),
    ),
    "client": Area(
        ("messages.py", "status.py", "exchange.py", "temporal/messages.py"),
        tuple(f"clients/test_{each}.py" for each in ("messages", "status", "exchange", "temporal_messages")),
        package="signoff_client",
    ),
    "channels": Area(
        tuple(f"channels/inbound/{each}.py" for each in ("target", "answer_parser", "answer_tokens")),
        tuple(
            f"channels/test_{each}.py"
            for each in ("target", "answer_tokens", "answer_parser", "utterances", "answer_set")
        ),
        ("channels/test_answer_parser.py::test_reading_takes_time_in_proportion_to_the_length",),
    ),
}
_DIFFS = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant


def diff(name):
    try:
        return get_diff_for_mutant(name)
    except Exception as error:
        return f"+{type(error).__name__}: see the mutated file"


print(json.dumps([diff(name) for name in json.load(sys.stdin)]))
"""
# Shrinking a counter-example takes longer than everything else, and one failure says enough.
_PROFILE = """

import functools
import sys

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    max_examples=25,
    phases=(Phase.explicit, Phase.generate),
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=tuple(HealthCheck),
    report_multiple_bugs=False,
)
settings.load_profile("mutants")


def pytest_sessionstart() -> None:
    # What was computed before the mutant was there is computed again.
    _forget()


@pytest.hookimpl(specname="pytest_runtest_setup")
def pytest_forget() -> None:
    # Where it is seen which tests run which function, all do that would, were they alone.
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        _forget()


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("signoff.") else ():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()
"""
_CONFIG = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only}
also_copy = ["examples"]
pytest_add_cli_args = {args}
pytest_add_cli_args_test_selection = {tests}
type_check_command = {types}
timeout_multiplier = 6.0
timeout_constant = 5.0
use_git_change_detection = false
track_dependencies = false
"""


def prepare_copy(name: str) -> Path:
    """A fresh copy of the project in which mutmut can work on one area."""
    place = BUILD / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copytree(ROOT / "examples", place / "examples", ignore=UNWANTED)
    copy_code(name, place)
    return place


def copy_code(name: str, place: Path) -> None:
    """Bring code, tests and options of the copy up to date."""
    area = AREAS[name]
    places = {"tests": ROOT / "tests"} | {f"src/{each}": package for each, package in PACKAGES.items()}
    for target, source in places.items():
        shutil.copytree(source, place / target, ignore=UNWANTED, dirs_exist_ok=True)
    with (place / "tests" / "conftest.py").open("a") as conftest:
        conftest.write(_PROFILE)
    only = [f"src/{area.package}/{source}" for source in area.sources]
    types = [sys.executable, str(Path(__file__).resolve()), "--types", "mypy", *only]
    options = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
    text = _CONFIG.format(
        only=json.dumps(only),
        args=json.dumps([*options, *(f"--deselect=tests/{each}" for each in area.left_out)]),
        tests=json.dumps([f"tests/{each}" for each in area.tests]),
        types=json.dumps(types),
    )
    (place / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + text)


def refresh(name: str) -> Path:
    """The copy of the last run with code and tests as they are now, in which what was killed is not tried again."""
    place = BUILD / name
    shutil.rmtree(place / "tests")
    copy_code(name, place)
    for path in metas(place):
        meta = json.loads(path.read_text())
        tried = meta["exit_code_by_key"]
        tried |= {mutant: None for mutant, code in tried.items() if _kind(code) == "survived"}
        path.write_text(json.dumps(meta))
    return place


def metas(place: Path) -> list[Path]:
    """What mutmut wrote down of each file."""
    return sorted((place / "mutants" / "src").rglob("*.py.meta"))


def types() -> int:
    """What mutmut asks for type errors: those of mypy that lie in one mutant, as JSON lines."""
    found = sorted({str(path) for pattern in sys.argv[3:] for path in Path().glob(pattern)})
    # mypy takes minutes over so many copies and caches no file with errors: the same code is asked about once.
    result = BUILD / f".types-{_digest(sorted(Path('src').rglob('*.py')))}"
    if not result.exists():
        cache = str(BUILD / ".mypy_cache")
        command = [sys.executable, "-m", "mypy", "--output", "json", "--cache-dir", cache, *_modules(found)]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        result.write_text(shown.stdout)
    within = {path: _mutant_lines(path) for path in found}
    for line in result.read_text().splitlines():
        error = json.loads(line) if line.startswith("{") else {}
        if error.get("line") in within.get(error.get("file", ""), ()):
            sys.stdout.write(line + "\n")
    return 0


def _digest(paths: list[Path]) -> str:
    result = hashlib.sha256()
    for path in paths:
        result.update(f"{path}\0".encode() + path.read_bytes() + b"\0")
    return result.hexdigest()[:16]


def _modules(paths: list[str]) -> Iterator[str]:
    for path in paths:
        yield from ("-m", path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def _mutant_lines(path: str) -> set[int]:
    """Line numbers that belong to a mutated copy of a function (not to the original or to the file around it)."""
    lines: set[int] = set()
    inside, depth = False, 0
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith(("def ", "async def ", "@", "class ")) and (not inside or indent <= depth):
            name = line.split("(")[0]
            inside, depth = "__mutmut_" in name and "__mutmut_orig" not in name, indent
        elif inside and line.strip() and indent <= depth and not line.lstrip().startswith(")"):
            inside = False
        if inside:
            lines.add(number)
    return lines


@dataclass(frozen=True)
class Tally:
    """What became of one area's mutants; `survivors` are (file, name of the mutant)."""

    counts: Counter[str]
    survivors: tuple[tuple[str, str], ...]

    @property
    def score(self) -> float:
        """Percent killed of those that are valid programs; 100 when there are none."""
        killed = self.counts["killed"] + self.counts["timed out"]
        tried = killed + self.counts["survived"]
        return 100.0 * killed / tried if tried else 100.0


def count(place: Path) -> Tally:
    """Read what mutmut wrote down."""
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
    # Whatever else a run may end with proves nothing, so it counts as survived.
    return "typed" if code == KILLED_BY_TYPES else "survived"


def describe(place: Path, survivors: tuple[tuple[str, str], ...]) -> Iterator[str]:
    """Each survivor as its file and name, then the lines it takes away and puts there."""
    names = json.dumps([name for _, name in survivors])
    command = [sys.executable, "-c", _DIFFS]
    shown = subprocess.run(command, cwd=place, input=names, capture_output=True, text=True, check=True).stdout
    for (file, name), diff in zip(survivors, json.loads(shown), strict=True):
        yield f"{file} {name.rpartition('.')[2]}"
        changed = (line for line in diff.splitlines() if line[:1] in ("-", "+"))
        yield from (f"    {line}" for line in changed if not line.startswith(("---", "+++")))


def main() -> int:
    """Run what was asked for; 0 when every area reached the score."""
    if sys.argv[1:2] == ["--types"]:
        return types()
    parser = argparse.ArgumentParser(description="mutation tests of the areas that decide")
    parser.add_argument("areas", nargs="*", help=f"any of {', '.join(AREAS)}; all by default")
    parser.add_argument("--again", action="store_true", help="try what survived the last run against the present tests")
    parser.add_argument("--report", action="store_true", help="show the last run only")
    parser.add_argument("--children", default=str(os.cpu_count() or 1), help="mutants tried at a time")
    given = parser.parse_args()
    unknown = [name for name in given.areas if name not in AREAS]
    if unknown:
        parser.error(f"there is no area {', '.join(unknown)}; there are {', '.join(AREAS)}")
    chosen = given.areas or list(AREAS)
    for name in chosen if not given.report else ():
        place = refresh(name) if given.again else prepare_copy(name)
        subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", given.children],
            cwd=place,
            env=os.environ | VARIABLES,
            check=False,
        )
    return report(chosen)


def report(chosen: list[str]) -> int:
    """Print and keep the numbers and the survivors."""
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
