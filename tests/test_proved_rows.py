import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import sys

sys.path.insert(0, {tests!r})
from proved_rows import ProvedRows


def pytest_configure(config):
    config.pluginmanager.register(ProvedRows(config, lambda: {{"A01", "A02"}}, lambda: {excused}))
"""
TESTS = """
import pytest


@pytest.mark.row("A01")
def test_first():
    pass


@pytest.mark.row("A03", "A02")
def test_second():
    {second}
"""


def run(folder: Path, second: str, *args: str, excused: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers =\n    row(*ids): rows\n")
    (folder / "tests").mkdir()
    here = str(Path(__file__).parent)
    (folder / "tests" / "conftest.py").write_text(CONFTEST.format(tests=here, excused=excused))
    (folder / "tests" / "test_rows.py").write_text(TESTS.format(second=second))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("args", [(), ("-n", "2")])
def test_run_without_a_passed_test_for_a_row_fails(tmp_path: Path, args: tuple[str, ...]) -> None:
    ran = run(tmp_path, "pytest.skip('not here')", *args)
    assert ran.returncode == 1
    assert "no test that carries them passed in this run: A02" in ran.stdout


@pytest.mark.parametrize("args", [(), ("-n", "2")])
def test_run_with_a_passed_test_for_every_row_passes(tmp_path: Path, args: tuple[str, ...]) -> None:
    ran = run(tmp_path, "pass", *args)
    assert (ran.returncode, "in this run" in ran.stdout) == (0, False)


def test_run_of_some_tests_does_not_need_every_row(tmp_path: Path) -> None:
    assert run(tmp_path, "pass", "-k", "first").returncode == 0


@pytest.mark.parametrize(("excused", "code"), [("A02", 0), ("A01", 1)])
def test_only_rows_of_omitted_tests_are_excused(tmp_path: Path, excused: str, code: int) -> None:
    assert run(tmp_path, "pytest.skip('not here')", excused=(excused,)).returncode == code
