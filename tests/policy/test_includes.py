from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.policy.expression import facts
from signoff.policy.first_engine import first_program
from signoff.policy.second_engine import second_program

VARIABLES = ("args",)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 2.5]) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "l"]), inner, max_size=2),
    max_leaves=4,
)


def kinds(text: str, args: dict[str, Any]) -> tuple[str, str]:
    data = facts({"args": args})
    return first_program(text, VARIABLES).run(data.plain).kind, second_program(text).run(data.celpy).kind


@pytest.mark.row("B78")
@table(
    ("args", "kind"),
    ({"a": ["x", "y"], "b": "x"}, "true"),
    ({"a": ["xy"], "b": "x"}, "false"),
    ({"a": [], "b": "x"}, "false"),
    ({"a": [1, 2.0], "b": 2}, "true"),
    ({"a": [True], "b": 1}, "false"),
    ({"a": [None], "b": None}, "true"),
    ({"a": [{"k": [1]}], "b": {"k": [1.0]}}, "true"),
    ({"a": "xyz", "b": "yz"}, "true"),
    ({"a": "xyz", "b": ""}, "true"),
    ({"a": "xyz", "b": "Z"}, "false"),
    ({"a": "1", "b": 1}, "error"),
    ({"a": {"x": 1}, "b": "x"}, "error"),
    ({"a": None, "b": "x"}, "error"),
    ({"a": 3, "b": 3}, "error"),
    ({"b": "x"}, "error"),
    ({"a": ["x"]}, "error"),
)
def test_both_engines_agree_on_includes(args: dict[str, Any], kind: str) -> None:
    assert kinds("args.a.includes(args.b)", args) == (kind, kind)


@given(st.lists(JSON, max_size=4), JSON)
def test_includes_on_a_list_equals_in(items: list[Any], item: Any) -> None:
    args = {"a": items, "b": item}
    assert kinds("args.a.includes(args.b)", args) == kinds("args.b in args.a", args)


@given(st.text(max_size=5), st.text(max_size=2))
def test_includes_on_a_text_equals_contains(text: str, part: str) -> None:
    args = {"a": text, "b": part}
    assert kinds("args.a.includes(args.b)", args) == kinds("args.a.contains(args.b)", args)


def test_error_inside_includes_is_absorbed_like_any_other() -> None:
    assert kinds("args.a.includes(1) || true", {"a": 3}) == ("true", "true")
    assert kinds("args.a.includes(1) && false", {"a": 3}) == ("false", "false")
    assert kinds("args.none.includes(1)", {"a": [1]}) == ("error", "error")
    assert kinds("[1, 2].exists(each, args.a.includes(each))", {"a": [2]}) == ("true", "true")
