import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.registry.tool_result import ToolResult, jsonable, render_value, trim

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=8,
)


@pytest.mark.row("E22", "E23")
def test_trim_keeps_the_first_characters_and_states_the_length() -> None:
    cut = trim("x" * 100, 10)
    assert cut == ("x" * 10 + "\n[truncated \u2014 100 chars total]", True, 100)
    assert trim("x" * 10, 10) == ("x" * 10, False, 10)


@pytest.mark.row("N12")
@given(st.text(max_size=60), st.integers(min_value=0, max_value=70))
def test_trim_counts_code_points(text: str, budget: int) -> None:
    cut = trim(text, budget)
    assert cut.original_chars == len(text)
    assert cut.truncated == (len(text) > budget)
    assert cut.text.startswith(text[:budget])


@given(JSON)
def test_json_values_render_as_themselves(value: Any) -> None:
    text = render_value(value)
    assert text == value.encode("utf-8", "replace").decode() if isinstance(value, str) else json.loads(text) == value


@pytest.mark.row("N13")
def test_object_with_result_keys_is_plain_data() -> None:
    assert json.loads(render_value({"error": "x", "data": 1})) == {"error": "x", "data": 1}
    assert ToolResult(1).cost == 0.0


@table(
    ("value", "expected"),
    (dt.date(2030, 1, 2), "2030-01-02"),
    ({1}, [1]),
    (float("nan"), "NaN"),
    ("a\ud800", "a?"),
    ({"a": object()}, {"a": "<object>"}),
    (b"\xff", "<bytes>"),
)
def test_result_without_a_json_form_is_still_a_result(value: Any, expected: Any) -> None:
    assert jsonable(value) == expected


def test_result_that_raises_on_reading_is_still_a_result() -> None:
    def rows() -> Iterator[int]:
        yield 1
        raise RuntimeError("cursor closed")

    assert jsonable(rows()) == "<generator>"


def test_recursive_result_is_still_a_result() -> None:
    value: list[Any] = []
    value.append(value)
    assert jsonable(value) == "<list>"
