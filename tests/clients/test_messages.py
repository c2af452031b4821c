import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff_client.messages import Proposal, clip, encode_outcome, safe_key, same_arguments, to_text


@given(st.text(max_size=300))
def test_safe_key_fits_a_header(key: str) -> None:
    made = safe_key(key)
    assert made == safe_key(key)
    assert 1 <= len(made) <= 200
    assert made.isascii()
    assert made.isprintable()


@table(("value", "text"), ("a", "a"), ({"a": 1}, '{"a": 1}'), (None, "null"), ({1}, "{1}"), ("\ud800", "\ud800"))
def test_result_is_converted_to_text(value: Any, text: str) -> None:
    assert to_text(value) == text
    assert clip(to_text(value)).encode()


def test_key_that_fits_a_header_is_sent_unchanged() -> None:
    """Another key would name another call. A text unfit for a header gets its own key."""
    assert [safe_key(each) for each in ("k", "a key: 7", "k" * 200)] == ["k", "a key: 7", "k" * 200]
    made = [safe_key(each) for each in ("", "k" * 201, "k" * 202, "k\n", "\u00e4", "\u00f6", "\ud800")]
    assert len({*made}) == len(made)
    assert all(len(each) == 64 for each in made)


def test_proposal_contains_only_the_given_fields() -> None:
    assert json.loads(Proposal("refund", {"euro": 1}).encode()) == {"tool": "refund", "args": {"euro": 1}}
    callback = {"url": "https://x", "secret": "s"}
    whole = Proposal(
        "refund",
        {"euro": 0},
        user="ana",
        session="s",
        says="f" * 2_001,
        timeout=0.5,
        callback=callback,
        key="k",
        wait=3,
    )
    assert json.loads(whole.encode()) == {
        "tool": "refund",
        "args": {"euro": 0},
        "user": "ana",
        "session": "s",
        "says": "f" * 2_000,
        "timeout": 0.5,
        "callback": callback,
    }
    assert "\u00e4".encode() in Proposal("refund", {"to": "\u00e4"}).encode()


@table("value", float("nan"), float("inf"), {1}, "\ud800")
def test_non_json_proposal_cannot_be_sent(value: Any) -> None:
    """It would change in transit: approvers would see other arguments than the run's."""
    with pytest.raises((TypeError, ValueError)):
        Proposal("refund", {"euro": value}).encode()


@table(
    ("result", "told"),
    ({"a": [1, None]}, {"a": [1, None]}),
    (None, None),
    ({1}, "{1}"),
    ([float("inf")], "[Infinity]"),
    ("\ud800", "?"),
    ("e" * 20_000, "e" * 20_000),
)
def test_report_contains_json_or_otherwise_text(result: Any, told: Any) -> None:
    assert json.loads(encode_outcome("ok", result)) == {"code": "ok", "result": told}


def test_text_is_clipped_at_the_gateways_limit() -> None:
    assert clip("e" * 10_000) == "e" * 10_000
    assert clip("e" * 10_001) == "e" * 10_000 + " ... (cut)"
    assert to_text({"a": "\u00e4"}) == '{"a": "\u00e4"}'


@table(
    ("one", "other", "same"),
    ({"force": True}, {"force": 1}, False),
    ({"force": [{"deep": False}]}, {"force": [{"deep": 0}]}, False),
    ({"euro": 1}, {"euro": 1.0}, True),
    ({"a": 1, "b": (2,)}, {"b": [2], "a": 1}, True),
    ({"a": 1}, {"a": "1"}, False),
    ({"a": 1}, {"a": 1, "b": None}, False),
)
def test_arguments_are_equal_if_their_json_is(one: Any, other: Any, same: bool) -> None:
    assert same_arguments(one, other) is same
