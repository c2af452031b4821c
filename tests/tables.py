"""A table is one test whose rows are cheap: each row is a subtest, and all of them run."""

import contextlib
import functools
import inspect
import itertools
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

Test = Callable[..., Any]
Ids = Callable[[Any], object] | Sequence[str]
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 80


class Row(NamedTuple):
    name: str
    values: dict[str, Any]

    @property
    def label(self) -> str:
        """The name, else the values, shortened."""
        return self.name or ", ".join(f"{name}={SHORT.repr(value)}" for name, value in self.values.items())


def table(names: str | Sequence[str], rows: Iterable[Any], *, ids: Ids | None = None) -> Callable[[Test], Test]:
    """Run a test for each row, written as for `pytest.mark.parametrize`; stacked tables combine their rows.

    The rows share the fixtures and the time limit of the test, and `--lf` runs all of them. Use `parametrize` where a
    row takes time or needs a store, a directory or a patch of its own.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    axis = [_row(columns, each, number, ids) for number, each in enumerate(rows)]
    assert axis, "a table without rows checks nothing"

    def decorate(test: Test) -> Test:
        plain = getattr(test, "plain", test)
        axes = [axis, *getattr(test, "axes", [])]
        whole = [*itertools.product(*axes)]
        run: Any = _asynchronous(plain, whole) if inspect.iscoroutinefunction(plain) else _synchronous(plain, whole)
        functools.update_wrapper(run, test)
        run.plain, run.axes, run.__signature__ = plain, axes, _signature(plain, _values(whole[0]))
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


def _signature(test: Test, values: dict[str, Any]) -> inspect.Signature:
    """Return the fixtures that the test asks for, and `subtests`."""
    given = inspect.signature(test).parameters
    fixtures = [given[name] for name in given if name not in values]
    return inspect.Signature([inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD), *fixtures])


def _synchronous(test: Test, whole: list[tuple[Row, ...]]) -> Test:
    def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
        for rows in whole:
            with _reported(subtests, rows):
                test(**fixtures, **_values(rows))

    return run


def _asynchronous(test: Test, whole: list[tuple[Row, ...]]) -> Test:
    async def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
        for rows in whole:
            with _reported(subtests, rows):
                await test(**fixtures, **_values(rows))

    return run


@contextlib.contextmanager
def _reported(subtests: pytest.Subtests, rows: Sequence[Row]) -> Iterator[None]:
    """Report the result under the label of the row; end a table that runs out of time."""
    late = False
    with subtests.test("-".join(row.label for row in rows)):
        try:
            yield
        except pytest.fail.Exception as error:
            late = "from pytest-timeout" in str(error)
            raise
    if late:
        pytest.fail("the table ran out of time: the rows after this one did not run")
