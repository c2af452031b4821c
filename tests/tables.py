"""A table is one test with cheap rows: each row is a subtest, and all of them run."""

import contextlib
import functools
import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from signoff.store.store import open_store

Test = Callable[..., Any]
Ids = Callable[[Any], object] | Sequence[str]
OWN = ("monkeypatch", "store", "tmp_path")
"""Fixtures that each row has for itself."""
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 80


class Row(NamedTuple):
    name: str
    values: dict[str, Any]

    @property
    def label(self) -> str:
        return self.name or ", ".join(f"{name}={SHORT.repr(value)}" for name, value in self.values.items())


def table(names: str | Sequence[str], *rows: Any, ids: Ids | None = None) -> Callable[[Test], Test]:
    """Run a test for each row; stacked tables combine their rows.

    A row is a tuple, a `pytest.param` or, in a table of one column, the value.

    Each row has its own `tmp_path`, `monkeypatch`, `store` and `caplog`. The rows share other fixtures and the time
    limit of the test, and `--lf` runs all of them. Use `parametrize` where a row takes time or needs other separate
    fixtures.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    assert [type(row) for row in rows] != [list], "each row is an argument of its own"
    axis = [_row(columns, each, number, ids) for number, each in enumerate(rows)]
    assert axis, "a table without rows checks nothing"

    def decorate(test: Test) -> Test:
        plain = getattr(test, "plain", test)
        axes = [axis, *getattr(test, "axes", [])]
        whole = [*itertools.product(*axes)]
        asked = inspect.signature(plain).parameters.keys() - _values(whole[0])
        own = [name for name in OWN if name in asked]
        kind = _asynchronous if inspect.iscoroutinefunction(plain) else _synchronous
        run: Any = kind(plain, whole, own)
        functools.update_wrapper(run, test)
        fixtures = sorted({"subtests", *asked} - {*own} | ({"tmp_path"} if {"store", "tmp_path"} & {*own} else set()))
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in fixtures]
        run.plain, run.axes, run.__signature__ = plain, axes, inspect.Signature(parameters)
        return run

    return decorate


def _row(columns: list[str], given: Any, number: int, ids: Ids | None) -> Row:
    if not isinstance(given, type(pytest.param())):
        given = pytest.param(*((given,) if len(columns) == 1 else given))
    name, values = given.id, given.values
    if name is None and ids is not None:
        name = "-".join(str(ids(value)) for value in values) if callable(ids) else ids[number]
    return Row(name or "", dict(zip(columns, values, strict=True)))


def _values(rows: Sequence[Row]) -> dict[str, Any]:
    return {name: value for row in rows for name, value in row.values.items()}


def _synchronous(test: Test, whole: list[tuple[Row, ...]], own: list[str]) -> Test:
    def run(subtests: pytest.Subtests, tmp_path: Path | None = None, **shared: Any) -> None:
        for number, rows in enumerate(whole):
            with _reported(subtests, rows), _made(tmp_path, number, shared.get("caplog")) as made:
                test(**shared, **_values(rows), **{name: made[name] for name in own})

    return run


def _asynchronous(test: Test, whole: list[tuple[Row, ...]], own: list[str]) -> Test:
    async def run(subtests: pytest.Subtests, tmp_path: Path | None = None, **shared: Any) -> None:
        for number, rows in enumerate(whole):
            with _reported(subtests, rows), _made(tmp_path, number, shared.get("caplog")) as made:
                async with contextlib.AsyncExitStack() as stack:
                    if "store" in own:
                        opened = open_store(f"sqlite:///{made['tmp_path']}/signoff.db")
                        made["store"] = await stack.enter_async_context(opened)
                    await test(**shared, **_values(rows), **{name: made[name] for name in own})

    return run


@contextlib.contextmanager
def _made(folder: Path | None, number: int, log: pytest.LogCaptureFixture | None) -> Iterator[dict[str, Any]]:
    if log is not None:
        log.clear()
    with pytest.MonkeyPatch.context() as patch:
        made: dict[str, Any] = {"monkeypatch": patch}
        if folder is not None:
            made["tmp_path"] = folder / str(number)
            made["tmp_path"].mkdir()
        yield made


@contextlib.contextmanager
def _reported(subtests: pytest.Subtests, rows: Sequence[Row]) -> Iterator[None]:
    late = False
    with subtests.test("-".join(row.label for row in rows)):
        try:
            yield
        except pytest.fail.Exception as error:
            late = "from pytest-timeout" in str(error)
            raise
    if late:
        pytest.fail("the table ran out of time: the rows after this one did not run")
