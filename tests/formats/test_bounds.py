import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.canonical_json import NotCanonical, canonical_json
from signoff.formats.bounds import bounds_problem


def nest(depth: int) -> Any:
    """`depth` levels include the innermost value."""
    value: Any = 1
    for _ in range(depth - 1):
        value = [value]
    return value


@table(
    "value",
    None,
    True,
    0,
    2**53 - 1,
    -(2**53) + 1,
    1.5,
    "é",
    {},
    [],
    {"a": [1, {"b": None}]},
    nest(32),
    [0] * 1_999,
    ("a",),
)
def test_json_of_reasonable_size_is_within_limits(value: Any) -> None:
    assert bounds_problem(value) == ""


@table(
    ("value", "why"),
    (2**53, "integer"),
    (-(2**53), "integer"),
    (math.nan, "finite"),
    (math.inf, "finite"),
    ("\udfff", "surrogate"),
    ({"\ud800": 1}, "surrogate"),
    ({1: 1}, "not a string"),
    (b"x", "bytes"),
    ({1}, "set"),
    (nest(33), "deeper"),
    ([0] * 2_000, "values"),
    ({str(n): 0 for n in range(2_000)}, "values"),
    ([[0] * 999, [0] * 999], "values"),
)
def test_values_that_engines_may_read_differently_are_out_of_limits(value: Any, why: str) -> None:
    assert why in bounds_problem(value)


def test_recursive_data_is_out_of_limits() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "deeper" in bounds_problem(loop)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=20,
    )
)
def test_data_within_limits_has_a_canonical_form(value: Any) -> None:
    try:
        canonical_json(value)
    except NotCanonical:
        assert bounds_problem(value) != ""
    else:
        assert bounds_problem(value) == ""
