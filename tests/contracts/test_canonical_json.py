import enum
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.canonical_json import NotCanonical, canonical_json, same_arguments

TEXTS = st.text(st.characters(codec=None), max_size=8) | st.sampled_from(["\x00\x1f\x7f", "\u2028", "é", "\U0001f600"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**53) - 2, 2**53 + 2) | st.floats() | TEXTS
NAMES = TEXTS | st.text('aZ_-0"\\/\n', max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)


@given(VALUES)
@example({"b": 1, "a": [True, None, '\t\b\f\r\n"\\/']})
@example({"\ue000": 1, "\U00010000": 2})
@example({"a": -(2**53) + 1, "b": 2**53 - 1, "c": (1, 2)})
@example({"a": 2**53})
@example(["\ud800"])
@example({"a": 1.0, "b": -0.0, "c": 1e21})
def test_value_is_written_exactly_like_the_standard(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, ValueError):
        with pytest.raises(NotCanonical):
            canonical_json(value)
    else:
        assert canonical_json(value) == expected


class Colour(enum.StrEnum):
    RED = "red"


@table("odd", {1: "a"}, {"a": {2}}, {"a": object()}, {None: 1}, b"x", {"a": 2**60})
def test_non_json_value_is_refused(odd: Any) -> None:
    """Non-text names would become texts, and two values would have one hash."""
    with pytest.raises(NotCanonical):
        canonical_json(odd)


def test_derived_plain_types_are_written_like_their_base() -> None:
    assert canonical_json({"a": Colour.RED}) == rfc8785.dumps({"a": Colour.RED}) == canonical_json({"a": "red"})


@table(
    ("one", "other", "same"),
    ({"force": True}, {"force": 1}, False),
    ({"euro": 1}, {"euro": 1.0}, True),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ({"n": 2**60}, {"n": 2**60}, False),
    ids=["boolean and number", "one number", "order of names", "without a canonical form"],
)
def test_arguments_are_equal_by_their_canonical_form(one: Any, other: Any, same: bool) -> None:
    assert same_arguments(one, other) is same
