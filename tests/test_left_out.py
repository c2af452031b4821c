import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.chromium
def test_browser(): assert False

def test_plain(): pass

@pytest.mark.rehearsal
def test_play(): pass
"""
INI = """[pytest]
testpaths = .
markers =
    chromium: a browser
    long: takes its time
    rehearsal: is played before a release
"""

DESELECT = ("--deselect", "test_it.py::test_browser")
NOT_PLAYED = "left out 1 tests of the rehearsal: make rehearsal runs them"


def run_without_programs(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run tests under this suite's conftest with an empty PATH. `args` are pytest's own."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "attacks").mkdir()
    (folder / "attacks" / "test_long.py").write_text("def test_long(): pass\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNOFF_")}
    # The conftest's imports are next to it, and in the project.
    tests = Path(__file__).parent
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(tests), str(tests.parent), env.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        command, cwd=folder, env=env | {"PATH": str(folder)} | variables, capture_output=True, text=True, check=False
    )


def test_missing_program_is_named_on_the_last_line(tmp_path: Path) -> None:
    run = run_without_programs(tmp_path, "-k", "test_browser or test_plain")
    assert run.returncode == 0, run.stdout
    assert "1 passed, 3 deselected" in run.stdout
    assert run.stdout.splitlines()[-1] == "left out 1 tests that need programs not installed here: chromium"


@pytest.mark.parametrize(("names", "code"), [("test", 1), ("plain", 0)])
def test_missing_program_fails_if_all_are_required(tmp_path: Path, names: str, code: int) -> None:
    run = run_without_programs(tmp_path, "-k", names, SIGNOFF_REQUIRE_ALL="1")
    assert run.returncode == code, run.stdout
    assert ("not installed: chromium" in run.stdout + run.stderr) == bool(code)


@pytest.mark.parametrize(
    ("args", "variables", "passed", "last"),
    [
        (DESELECT, {}, 1, f"left out 1 long tests: make test-all runs them; {NOT_PLAYED}"),
        (DESELECT, {"SIGNOFF_REQUIRE_ALL": "1"}, 2, NOT_PLAYED),
        (("attacks",), {}, 1, ""),
        (("-m", "rehearsal"), {}, 1, ""),
        (("test_it.py::test_play",), {}, 1, ""),
    ],
)
def test_long_tests_and_rehearsals_are_left_out_by_default(
    tmp_path: Path, args: tuple[str, ...], variables: dict[str, str], passed: int, last: str
) -> None:
    run = run_without_programs(tmp_path, *args, **variables)
    assert (run.returncode, f"{passed} passed" in run.stdout) == (0, True), run.stdout
    assert run.stdout.splitlines()[-1].endswith(last)
    assert ("left out" in run.stdout) == bool(last)


def test_tests_of_an_installed_program_are_long(tmp_path: Path) -> None:
    (tmp_path / "chromium").touch(0o755)
    run = run_without_programs(tmp_path, "--deselect", "test_it.py::test_play")
    assert (run.returncode, "1 passed" in run.stdout) == (0, True), run.stdout
    assert run.stdout.splitlines()[-1] == "left out 2 long tests: make test-all runs them"
