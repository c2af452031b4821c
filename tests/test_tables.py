import subprocess
import sys
from pathlib import Path

import pytest
from tables import table

TESTS = """
import asyncio
import logging
import os
import time

import pytest
from tables import table


@pytest.fixture
def base():
    return 10


@table(("text", "size"), ("one", 3), ("three", 3), pytest.param("seven", 3, id="long"), ("two", 3))
def test_sizes(base, text, size):
    assert len(text) + base == size + base


@table("left", 1, 2, ids=str)
@table("right", 10, 20, ids=lambda value: f"r{value}")
async def test_products(left, right):
    await asyncio.sleep(0)
    assert left * right < 40


@table("text", "a", "b")
async def test_own(caplog, monkeypatch, store, text, tmp_path):
    assert caplog.text == ""
    logging.error(text)
    assert text in caplog.text
    assert not (tmp_path / "text").exists() and "TABLE_TEXT" not in os.environ
    assert (tmp_path / "signoff.db").exists() and await store.read_ticket(text) is None
    (tmp_path / "text").write_text(text)
    monkeypatch.setenv("TABLE_TEXT", text)


@table("text", "a", "b")
def test_own_directory(text, tmp_path):
    (tmp_path / "new").mkdir()


@table("seconds", 0, 60, 61)
def test_late(seconds):
    time.sleep(seconds)
"""


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(f"[pytest]\nasyncio_mode = auto\npythonpath = {Path(__file__).parent}\n")
    (folder / "test_given.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", *args, "test_given.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("processes", [(), ("-n", "1")])
def test_every_row_runs_and_failed_rows_are_named(tmp_path: Path, processes: tuple[str, ...]) -> None:
    ran = run(tmp_path, "-v", "-k", "sizes or products", *processes)
    assert ran.returncode == 1
    assert ran.stdout.count("SUBPASSED") == 2 + 3
    for named in ("test_sizes [text='three', size=3]", "test_sizes [long]", "test_products [2-r20]"):
        assert f"__ {named} __" in ran.stdout
    assert "where 5 = len('three')" in ran.stdout


def test_last_failed_selects_the_table(tmp_path: Path) -> None:
    run(tmp_path, "-k", "sizes or products")
    again = run(tmp_path, "--lf", "--collect-only", "-q")
    assert again.stdout.splitlines()[:2] == ["test_given.py::test_sizes", "test_given.py::test_products"]


def test_each_row_has_its_own_store_directory_patch_and_log(tmp_path: Path) -> None:
    ran = run(tmp_path, "-k", "own")
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout


def test_table_that_runs_out_of_time_ends(tmp_path: Path) -> None:
    ran = run(tmp_path, "-v", "-k", "late", "--timeout=1", "--timeout-method=signal")
    assert (ran.returncode, "the table ran out of time" in ran.stdout) == (1, True)
    assert "seconds=61" not in ran.stdout.partition("= FAILURES =")[0]


def test_table_needs_a_row() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        table("row")


def test_table_accepts_no_list_of_rows() -> None:
    with pytest.raises(AssertionError, match="of its own"):
        table("row", [1, 2])
