from typing import Any

from tables import table

from signoff.formats.bounds import bounds_problem
from signoff.policy.facts import ToolFacts


@table(
    ("value", "why"),
    ({1: 1}, "a name that is not a string"),
    ({"a": {"b": 1, None: 2}}, "a name that is not a string"),
    ({"\ud800": 1}, "a name that is not Unicode (a lone surrogate)"),
    ([{"ok": 1, "x\udfff": 2}], "a name that is not Unicode (a lone surrogate)"),
    (["\ud800"], "text that is not Unicode (a lone surrogate)"),
    ({"a": 2**53}, "an integer outside ±(2^53-1)"),
    (float("-inf"), "a number that is not finite"),
    (b"", "a bytes, which is not a JSON type"),
    ([object()], "a object, which is not a JSON type"),
)
def test_data_out_of_limits_has_a_short_exact_message(value: Any, why: str) -> None:
    assert bounds_problem(value) == why


@table(("within", "why"), (998, ""), (999, ""), (1_000, "more than 2000 values"))
def test_values_next_to_a_nested_list_count(within: int, why: str) -> None:
    assert bounds_problem([*[0] * 999, [0] * within]) == why
    assert bounds_problem([[0] * within, *[0] * 999]) == why
    assert bounds_problem([*[0] * 999, {str(name): 0 for name in range(within)}]) == why


def test_nesting_limit_counts_objects_and_lists() -> None:
    value: Any = 1
    for _ in range(15):
        value = {"a": [value]}
    assert bounds_problem([value]) == ""
    assert bounds_problem([[value]]) == "values nested deeper than 32 levels"


def test_too_many_names_are_reported_before_an_invalid_one() -> None:
    assert bounds_problem(dict.fromkeys(range(2_000))) == "more than 2000 values"


def test_policy_sees_seven_facts_of_a_tool() -> None:
    tool = ToolFacts("pay", "acme", "local", ("money", "final"), "bank", "acme-tools")
    assert tool.as_cel() == {
        "name": "pay",
        "scope": "acme",
        "routing": "local",
        "tags": ["money", "final"],
        "toolset": "bank",
        "plugin": "acme-tools",
        "metadata": {},
    }
    assert ToolFacts("pay", "acme", "local", ()).as_cel() == {
        "name": "pay",
        "scope": "acme",
        "routing": "local",
        "tags": [],
        "toolset": "",
        "plugin": "",
        "metadata": {},
    }
