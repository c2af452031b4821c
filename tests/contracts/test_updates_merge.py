from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.contracts.updates import NO_UPDATES, Updates, apply_updates, free_updates, merge_updates

NAMES = st.sampled_from(["city", "project", "date", "data.city"])
VALUES = st.one_of(st.none(), st.integers(0, 9), st.text(max_size=2), st.lists(st.integers(0, 1), max_size=2))
FIELDS = st.dictionaries(NAMES, VALUES, max_size=3)
UPDATES = st.builds(lambda data, context: Updates(data=data, context=context), FIELDS, FIELDS)
CALLERS = st.builds(
    lambda context, data: {**context, **({} if data is None else {"data": data})},
    FIELDS,
    st.one_of(st.none(), FIELDS, st.just("no object")),
)


@pytest.mark.row("P18")
@given(UPDATES, CALLERS)
def test_caller_data_overrides_updates(updates: Updates, caller: dict[str, Any]) -> None:
    extra = apply_updates(updates, caller)
    found = caller.get("data", {})
    assert {name: extra[name] for name in caller if name != "data"} == {
        name: each for name, each in caller.items() if name != "data"
    }
    assert {name: extra[name] for name in updates.context if name not in caller} == {
        name: each for name, each in updates.context.items() if name not in caller
    }
    if isinstance(found, dict):
        assert extra.get("data", {}) == {**updates.data, **found}
    else:
        assert extra["data"] == found


@given(UPDATES, UPDATES, CALLERS)
def test_updates_of_names_set_by_the_caller_change_nothing(held: Updates, new: Updates, caller: dict[str, Any]) -> None:
    assert apply_updates(merge_updates(held, free_updates(new, caller)), caller) == apply_updates(
        merge_updates(held, new), caller
    )
    assert set(free_updates(new, caller).names) <= set(new.names)


@given(UPDATES, UPDATES, UPDATES)
def test_later_updates_win_and_merging_is_associative(a: Updates, b: Updates, c: Updates) -> None:
    assert merge_updates(merge_updates(a, b), c) == merge_updates(a, merge_updates(b, c))
    assert merge_updates(a, b).data == {**a.data, **b.data}
    assert merge_updates(a, NO_UPDATES) == merge_updates(NO_UPDATES, a) == a


def test_size_of_updates_is_the_size_of_their_json() -> None:
    assert NO_UPDATES.size == len("[{},{}]")
    assert Updates(data={"a": "ü"}).size == len('[{"a":"x"},{}]') + 1
    assert Updates(context={"a": "\ud800"}).size == len('[{},{"a":"x"}]') + 2
    assert Updates(data={"a": 1}, context={"b": 2}).names == ("data.a", "b")
