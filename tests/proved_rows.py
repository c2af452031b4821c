"""A row of docs/internal/features.md counts in a complete run if a test that carries it ran and passed."""

from collections.abc import Callable, Collection, Generator
from typing import Any

import pytest

_NAME = "rows"


def case(row: str, *values: Any, name: str = "") -> Any:
    return pytest.param(*values, marks=pytest.mark.row(row), id=name or None)


class ProvedRows:
    """`done` gives the rows, and `excused` the rows of tests that this run left out."""

    def __init__(
        self, config: pytest.Config, done: Callable[[], set[str]], excused: Callable[[], Collection[str]]
    ) -> None:
        self._config = config
        self._done = done
        self._excused = excused
        self._proved: set[str] = set()
        self._missing: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        report.user_properties.extend((_NAME, row) for mark in item.iter_markers("row") for row in mark.args)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._proved.update(str(row) for name, row in report.user_properties if name == _NAME)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare in the process that has every result."""
        if hasattr(self._config, "workerinput") or not self._everything():
            return
        self._missing = sorted(self._done() - self._proved - set(self._excused()))
        if self._missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._missing:
            rows = ", ".join(self._missing)
            terminalreporter.write_line(
                f"called done, but no test that carries them passed in this run: {rows}", red=True
            )

    def _everything(self) -> bool:
        option = self._config.option
        narrowed = option.keyword or option.markexpr or option.collectonly or option.maxfail
        narrowed = narrowed or getattr(option, "lf", False) or option.deselect or option.ignore
        return self._config.args_source == pytest.Config.ArgsSource.TESTPATHS and not narrowed
