import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tables import table

from signoff.contracts.canonical_json import canonical_json
from signoff.formats.read_only import read_only, writable_copy

PLAIN: dict[str, Any] = {"b": [1, {"c": "d"}], "a": {"e": [None, True, 1.5]}}

CHANGES: list[Callable[[Any], Any]] = [
    lambda it: it.update(x=1),
    lambda it: it.__setitem__("b", 1),
    lambda it: it.pop("b"),
    lambda it: it.popitem(),
    lambda it: it.clear(),
    lambda it: it.setdefault("x", 1),
    lambda it: it.__delitem__("b"),
    lambda it: it.__ior__({"x": 1}),
    lambda it: it["a"].update(x=1),
    lambda it: it["b"].append(1),
    lambda it: it["b"].extend([1]),
    lambda it: it["b"].insert(0, 1),
    lambda it: it["b"].__setitem__(0, 2),
    lambda it: it["b"].__delitem__(0),
    lambda it: it["b"].__iadd__([1]),
    lambda it: it["b"].__imul__(2),
    lambda it: it["b"].pop(),
    lambda it: it["b"].remove(1),
    lambda it: it["b"].reverse(),
    lambda it: it["b"].sort(),
    lambda it: it["b"].clear(),
    lambda it: it["b"][1].update(c="x"),
    lambda it: it["a"]["e"].append(1),
]


@table("change", *CHANGES)
def test_read_only_data_is_immutable_at_any_depth(change: Callable[[Any], Any]) -> None:
    value = read_only(PLAIN)
    with pytest.raises(TypeError, match="cannot be changed; copy it first"):
        change(value)
    assert value == PLAIN


def test_content_of_a_tuple_is_read_only_too() -> None:
    """A tuple becomes a list in JSON. Otherwise its content could change after an approval."""
    value = read_only({"zones": ({"name": "a"},)})
    with pytest.raises(TypeError, match="cannot be changed; copy it first"):
        value["zones"][0]["name"] = "b"
    assert value == {"zones": [{"name": "a"}]}


def test_read_only_data_reads_like_its_source() -> None:
    value = read_only(PLAIN)
    assert json.dumps(value) == json.dumps(PLAIN)
    assert canonical_json(value) == canonical_json(PLAIN)
    assert copy.deepcopy(value) is value
    assert copy.copy(value["b"]) is value["b"]
    assert pickle.loads(pickle.dumps(value)) == PLAIN
    assert read_only(value) is value
    assert {**value, "b": 1}["b"] == 1
    PLAIN["b"].append(2)
    assert value["b"] == [1, {"c": "d"}]
    PLAIN["b"].pop()


def test_writable_copy_is_independent_at_every_depth() -> None:
    kept = read_only({"a": {"b": [{"c": 1}]}})
    copied = writable_copy(kept)
    copied["a"]["b"][0]["c"] = 2
    copied["a"]["b"].append(3)
    assert copied == {"a": {"b": [{"c": 2}, 3]}}
    assert kept == {"a": {"b": [{"c": 1}]}}
