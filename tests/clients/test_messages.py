"""What is sent to a gateway: keys that a header carries, results as text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff_client.messages import clip, safe_key, to_text


@given(st.text(max_size=300))
def test_any_key_is_one_that_a_header_carries(key: str) -> None:
    """The same for the same."""
    made = safe_key(key)
    assert made == safe_key(key)
    assert 1 <= len(made) <= 200
    assert made.isascii()
    assert made.isprintable()


@pytest.mark.parametrize(
    ("value", "text"), [("a", "a"), ({"a": 1}, '{"a": 1}'), (None, "null"), ({1}, "{1}"), ("\ud800", "\ud800")]
)
def test_a_result_is_text(value: Any, text: str) -> None:
    """For the model, and for a report that takes nothing else."""
    assert to_text(value) == text
    assert clip(to_text(value)).encode()
