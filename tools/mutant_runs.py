"""Runs the tests of an area once for each of its mutants: a pytest plugin for `mutants.try_mutants`.

Tests are collected once. A first child records the lines and the time of each test. A second one, without a mutant,
shows that all tests pass. Then a child for each mutant runs the tests that reach the changed lines, until one fails. A
child is a fork of a process that has only collected tests, so no mutant sees another's traces, and none waits for
imports.
"""

import ast
import asyncio
import contextlib
import functools
import gc
import inspect
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import pytest
from coverage import Coverage
from hypothesis import HealthCheck, Phase, settings
from mutmut.configuration import config as mutmut_config
from mutmut.mutation.trampoline import set_mutant_under_test

from signoff.store.store import open_store

SURVIVED: Final = 0
KILLED: Final = 1
UNTESTED: Final = 33
ODD: Final = 35
TIMED_OUT: Final = 36
"""Results of a mutant, in mutmut's numbers."""
CHILD_BYTES: Final = 4 << 30
SAVE_SECONDS: Final = 5.0
SAY_SECONDS: Final = 30.0
_PASSED, _FAILED, _LATE = 100, 101, 102
"""Exit codes of a child. A program under test that ends the process has none of them."""
_NOTICED_BY: Final = "noticed-by"
_SERVERS: Final = frozenset({"server", "postgres_server"})
_PROGRAMS: Final = (
    "cerbos",
    "chromium",
    "dovecot",
    "mcp_packages",
    "openid",
    "postgres",
    "promtool",
    "pyright",
    "vercel",
)


class MutatedFile:
    """A file with its mutants and their results."""

    def __init__(self, meta_path: Path) -> None:
        self.path = meta_path.with_suffix("")
        self.meta: dict[str, Any] = json.loads(meta_path.read_text())
        self.codes: dict[str, int | None] = self.meta["exit_code_by_key"]
        self._meta_path = meta_path
        self._spans = json.loads(self.path.with_name(f"{self.path.name}.spans").read_text())["spans"]
        text = self.path.read_text()
        self._lines = text.splitlines()
        self._statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]

    def save(self) -> None:
        """Save atomically, as a run may be stopped at any time."""
        new = self._meta_path.with_suffix(".new")
        new.write_text(json.dumps(self.meta))
        new.replace(self._meta_path)

    def originals(self) -> list[range]:
        return [range(*_span(span)) for name, span in self._spans.items() if name.endswith("__mutmut_orig")]

    def changed(self, mutant: str) -> range:
        """Return the changed lines of the original function, with their whole statement.

        A test that runs none of them cannot notice. Returns the whole function if its first line differs.
        """
        name = mutant.rpartition(".")[2]
        first, end = _span(self._spans[f"{name.partition('__mutmut_')[0]}__mutmut_orig"])
        before = self._lines[first - 1 : end - 1]
        after = self._lines[slice(*(each - 1 for each in _span(self._spans[name])))]
        begins = next(number for number, line in enumerate(before) if "__mutmut_" in line)
        pairs = zip(before[begins + 1 :], after[begins + 1 :], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        line = first + begins + 1 + same
        if before[begins].partition("(")[2] != after[begins].partition("(")[2] or line >= end:
            return range(first, end)
        return self._statement(line, range(first, end))

    def _statement(self, line: int, function: range) -> range:
        # The function itself is the first statement.
        around = [each for each in self._statements if each.lineno in function and _holds(each, line)]
        inner = max(around, key=lambda each: (each.lineno, -(each.end_lineno or 0)))
        if inner is around[0]:
            # The change is in the signature, which has no executed line.
            return function
        body = getattr(inner, "body", None)
        if body and line < body[0].lineno:
            return range(inner.lineno, body[0].lineno)
        return range(inner.lineno, (inner.end_lineno or line) + 1)


@dataclass(frozen=True)
class TestReach:
    """The tests that run each line of each file, and the processor seconds of each test, both by its number."""

    __test__ = False
    lines: dict[str, dict[str, list[int]]]
    seconds: dict[int, float] = field(default_factory=dict)

    def of(self, path: Path, lines: range) -> set[int]:
        found = self.lines.get(str(path), {})
        return {test for line in lines for test in found.get(str(line), ())}


@dataclass
class RunningMutant:
    """A mutant whose tests are running in a child."""

    name: str
    file: MutatedFile
    folder: Path
    deadline: float


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant-children", type=int, default=1)
    parser.addoption("--mutant-seconds", type=float)


def pytest_sessionstart() -> None:
    """Try properties with few and fixed examples and without shrinking: one failure is enough."""
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect tests that need a server or a program: each mutant would start one."""
    items[:] = [item for item in items if not (_SERVERS & set(_fixtures(item)) or _needs_program(item))]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    option = session.config.getoption
    runs = MutantRuns(session, option("--mutant-children"), option("--mutant-seconds"))
    session.config.pluginmanager.register(runs)
    runs.run()
    return True


class MutantRuns:
    """Tries the untried mutants of the files in this directory, and saves the result of each."""

    def __init__(self, session: pytest.Session, children: int, seconds: float) -> None:
        self._session = session
        self._children = children
        self._seconds = seconds
        self._folders = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._files = [MutatedFile(path) for path in sorted(Path().resolve().rglob("*.py.meta"))]
        self._failure = ""
        self._note: Path | None = None
        self._number = -1
        self._kills: Counter[tuple[str, int]] = Counter()
        self._caches: list[Any] = []
        self._running: dict[int, RunningMutant] = {}
        self._started = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A child with a mutant ends here, within the test."""
        if report.failed:
            self._failure = f"{report.nodeid}\n{report.longreprtext}"
            if self._note is not None:
                self._note.write_text(f"{self._number}\n{self._failure}")
                os._exit(_LATE if "from pytest-timeout" in self._failure else _FAILED)

    def run(self) -> None:
        """End pytest if tests fail without a mutant, or never fail with one."""
        try:
            self._prepare()
            reach = self._measure()
            used = {test for file in self._files for lines in file.originals() for test in reach.of(file.path, lines)}
            reach.seconds.update(self._check(sorted(used)))
            self._try_all(reach)
        finally:
            for pid in self._running:
                os.killpg(pid, signal.SIGKILL)
            self._save()
            shutil.rmtree(self._folders, ignore_errors=True)

    def _prepare(self) -> None:
        """Prepare the state that all children share: session fixtures, imports, the first store."""
        mutmut_config()
        set_mutant_under_test("")
        plain = [item for item in self._session.items if not _is_async(item)]
        first = min(plain, key=lambda item: len(_fixtures(item)))
        other = next((item for item in self._session.items if item.path != first.path), plain[-1])
        self._session.config.hook.pytest_runtest_protocol(item=first, nextitem=other)
        asyncio.run(_open_a_store())
        for thread in set(threading.enumerate()) - {threading.main_thread()}:
            thread.join(timeout=60)
        if self._failure or threading.active_count() > 1:
            pytest.exit(f"no child can be made of this process: {self._failure or threading.enumerate()}", 1)
        # No child scans, and therefore copies, the objects of this process.
        gc.collect()
        gc.freeze()
        for name, module in list(sys.modules.items()):
            values = vars(module).values() if name.startswith(("signoff.", "signoff_client.")) else ()
            self._caches += [value for value in values if isinstance(value, functools._lru_cache_wrapper)]

    def _measure(self) -> TestReach:
        result = self._folders / "reach.json"
        paths = [str(file.path) for file in self._files]

        def measure() -> int:
            seen = Coverage(data_file=None, config_file=False, include=paths)
            seen.start()
            failures = [self._measure_one(number, item, seen) for number, item in enumerate(self._session.items)]
            seen.stop()
            found = {path: seen.get_data().contexts_by_lineno(path) for path in paths}
            lines = {
                path: {line: [int(each) for each in tests if each] for line, tests in by_line.items()}
                for path, by_line in found.items()
            }
            result.write_text(json.dumps({"failures": failures, "lines": lines}))
            return _PASSED

        code = _wait(self._fork(measure))
        if code != _PASSED:
            pytest.exit(f"which tests run which line was not seen: the child ended with {code}", 1)
        found = json.loads(result.read_text())
        if any(found["failures"]):
            pytest.exit("tests fail without a mutant:\n" + "\n".join(filter(None, found["failures"])), 1)
        return TestReach(found["lines"])

    def _measure_one(self, number: int, item: pytest.Item, seen: Coverage) -> str:
        # Run each test as if alone: otherwise it would use the caches and fixtures of another.
        self._forget()
        self._failure = ""
        seen.switch_context(str(number))
        other = next((each for each in self._session.items if each.path != item.path), None)
        self._session._setupstate.teardown_exact(item)
        self._session.config.hook.pytest_runtest_protocol(item=item, nextitem=other)
        return self._failure

    def _check(self, used: Sequence[int]) -> dict[int, float]:
        """Return the seconds of each test in a child without a mutant, where all must pass.

        If every function raises, some test must fail.
        """
        note = self._folders / _NOTICED_BY
        if (code := _wait(self._fork(lambda: self._run_tests("", used, note)))) != _PASSED:
            why = note.read_text() if note.exists() else ""
            pytest.exit(f"tests fail in a child without a mutant (it ended with {code}): {why}", 1)
        # Measure as in the child of a mutant: with coverage and without caches a test takes several times as long.
        seconds = dict(zip(used, json.loads(note.read_text()), strict=True))
        _say(f"{len(seconds)} tests take {sum(seconds.values()):.1f} s")
        if (code := _wait(self._fork(lambda: self._run_tests("fail", used, note)))) != _FAILED:
            pytest.exit(f"no test notices that every function of the area raises: the child ended with {code}", 1)
        return seconds

    def _try_all(self, reach: TestReach) -> None:
        untried = [(file, name) for file in self._files for name, code in file.codes.items() if code is None]
        saved = shown = time.monotonic()
        for number, (file, name) in enumerate(untried):
            tests = self._tests(file, name, reach)
            if not tests:
                file.codes[name] = UNTESTED
                continue
            while len(self._running) >= self._children:
                self._collect()
            self._start(name, file, tests, sum(reach.seconds[each] for each in tests))
            now = time.monotonic()
            if now - saved > SAVE_SECONDS:
                self._save()
                saved = now
            if now - shown > SAY_SECONDS:
                _say(f"{number} of {len(untried)} mutants tried")
                shown = now
        while self._running:
            self._collect()

    def _tests(self, file: MutatedFile, name: str, reach: TestReach) -> list[int]:
        """The most likely test to notice comes first. All fit the time limit."""
        function, own = name.partition("__mutmut_")[0], f"test_{file.path.name}"

        def rank(test: int) -> tuple[float, bool, float]:
            # First the tests that noticed other mutants of the function, then the module's own, then the fastest.
            seconds = reach.seconds[test]
            return (
                -self._kills[function, test] / max(seconds, 0.001),
                self._session.items[test].path.name != own,
                seconds,
            )

        left, tests = self._seconds, list[int]()
        for test in sorted(reach.of(file.path, file.changed(name)), key=rank):
            if left <= 0:
                break
            tests.append(test)
            left -= reach.seconds[test]
        return tests

    def _start(self, name: str, file: MutatedFile, tests: Sequence[int], seconds: float) -> None:
        self._started += 1
        folder = self._folders / str(self._started)
        folder.mkdir()

        def run() -> int:
            # An endless loop or excessive memory must end only this mutant.
            limit = int(6 * seconds + 5)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
            resource.setrlimit(resource.RLIMIT_AS, (CHILD_BYTES, CHILD_BYTES))
            return self._run_tests(name, tests, folder / _NOTICED_BY)

        self._running[self._fork(run, folder)] = RunningMutant(name, file, folder, time.monotonic() + 12 * seconds + 60)

    def _collect(self) -> None:
        """End a child whose time has passed."""
        while True:
            for pid, mutant in list(self._running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                late = not ended and time.monotonic() > mutant.deadline
                if late:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                if ended or late:
                    code = TIMED_OUT if late else _verdict(os.waitstatus_to_exitcode(status))
                    mutant.file.codes[mutant.name] = code
                    if code == KILLED:
                        test = int((mutant.folder / _NOTICED_BY).read_text().partition("\n")[0])
                        self._kills[mutant.name.partition("__mutmut_")[0], test] += 1
                    del self._running[pid]
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    shutil.rmtree(mutant.folder, ignore_errors=True)
                    return
            time.sleep(0.002)

    def _fork(self, work: Callable[[], int], folder: Path | None = None) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = ODD
        try:
            os.setpgid(0, 0)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if folder is not None:
                # The tests' files disappear with the child.
                tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
                self._session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
            code = work()
        finally:
            os._exit(code)

    def _run_tests(self, mutant: str, tests: Sequence[int], note: Path) -> int:
        """Stop at the first failure. Save the seconds of each test."""
        set_mutant_under_test(mutant)
        self._forget()
        self._note = note
        items = [self._session.items[each] for each in tests]
        self._session._setupstate.teardown_exact(items[0])
        seconds = list[float]()
        for self._number, item, following in zip(tests, items, [*items[1:], None], strict=True):
            begun = time.process_time()
            self._session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds.append(time.process_time() - begun)
        note.write_text(json.dumps(seconds))
        return _PASSED

    def _forget(self) -> None:
        """Drop values that were computed before the mutant existed."""
        for cache in self._caches:
            cache.cache_clear()

    def _save(self) -> None:
        for file in self._files:
            file.save()


def _span(span: Sequence[int]) -> tuple[int, int]:
    """Return the first line, and the line after the last."""
    return span[0], span[1] + 1


def _holds(statement: ast.stmt, line: int) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or 0)


def _verdict(code: int) -> int:
    # Any other exit code proves nothing. A child ended by a signal has reached a limit or crashed.
    return {_PASSED: SURVIVED, _FAILED: KILLED, _LATE: TIMED_OUT}.get(code, code if code < 0 else ODD)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_async(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return inspect.iscoroutinefunction(function) or any("runner" in name for name in _fixtures(item))


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def _needs_program(item: pytest.Item) -> bool:
    # Directories mark all their tests as long, so only the test's own mark tells.
    own = getattr(getattr(item, "function", None), "pytestmark", ())
    return any(mark.name == "long" for mark in own) or any(item.get_closest_marker(name) for name in _PROGRAMS)


async def _open_a_store() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(f"sqlite:///{folder}/signoff.db"):
            pass


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
