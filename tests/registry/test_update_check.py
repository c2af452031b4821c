from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registry_kit import a_tool, an_actor, pinned
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.contracts.limits import SESSION_UPDATES_BYTES
from signoff.contracts.updates import NO_UPDATES, Updates, apply_updates
from signoff.registry.actor import Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.cel_context import context_mapping
from signoff.registry.results.update_check import AcceptedUpdates, accept_updates

CITY = {"type": "string", "maxLength": 9}
CONTEXT = {"project": {"type": "string"}, "limits.cost": {"type": "number"}, "user.costCentre": {"type": "string"}}
NAMES = ("city", "date", "project", "limits.cost")


def catalog_with(*updates: str, context: dict[str, Any] | None = None, **fields: Any) -> Catalog:
    step = Step(name="ask", collect={"city": CITY, "date": None})
    actors = [an_actor(routes=(Route(name="trip", steps=(step,)),)), an_actor("other")]
    declared = CONTEXT if context is None else context
    return build_catalog(tools=[a_tool(updates=updates, **fields)], actors=actors, context=declared)


def asked(
    catalog: Catalog, data: Any = None, context: Any = None, actor: str = "desk", **fields: Any
) -> AcceptedUpdates:
    (tool,) = catalog.tools()
    ctx = pinned(actor, **fields)
    return accept_updates(tool, catalog.scopes[actor], catalog.fields, ctx, data or {}, context or {})


@pytest.mark.row("F44")
def test_only_declared_updates_are_accepted() -> None:
    known = catalog_with("city", "project")
    found = asked(known, {"city": "Porto", "date": 1, "project": "x"}, {"project": "x", "city": "y", "actor": "boss"})
    assert found.updates == Updates(data={"city": "Porto"}, context={"project": "x"})
    assert (found.ignored, found.problem) == (("data.date", "data.project", "city", "actor"), "")
    assert asked(catalog_with(), {"city": "Porto"}) == AcceptedUpdates(NO_UPDATES, ("data.city",))
    assert asked(catalog_with("city"), {}, {"project": "x"}) == AcceptedUpdates(NO_UPDATES, ("project",))
    assert asked(known, {"city": "Porto"}, actor="other") == AcceptedUpdates(NO_UPDATES, ("data.city",))


@pytest.mark.row("F44")
@table(
    ("data", "context", "words"),
    ({"city": 3}, {}, "the value of `data.city` must be of type string"),
    ({"city": "a-secret-text"}, {"project": "x"}, "the value of `data.city` must have at most 9 characters"),
    ({"city": "Porto"}, {"project": 7}, "the value of `project` must be of type string"),
    ({"date": {"a": [2**60]}}, {}, "the value of `data.date` is an integer outside"),
    ({"date": "x" * SESSION_UPDATES_BYTES}, {}, "the changes are over 8192 bytes"),
)
def test_single_invalid_value_rejects_all_updates(data: Any, context: Any, words: str) -> None:
    found = asked(catalog_with(*NAMES), data, context)
    assert found.updates == NO_UPDATES
    assert found.problem.startswith(words)
    assert "a-secret-text" not in found.problem


def test_data_with_a_whole_schema_must_match_as_a_whole() -> None:
    """Otherwise rules could not read the data."""
    whole = {"data": {"type": "object", "maxProperties": 1}}
    known = catalog_with("city", "date", context=whole)
    assert asked(known, {"city": "Porto"}).problem == ""
    held = {"data": {"date": 1}}
    assert asked(known, {"city": "Porto"}, extra=held).problem == ("the value of `data` must have at most 1 property")
    assert asked(known, {"date": 2}, extra=held).problem == ""


@table(
    ("updates", "words"),
    (("town",), "which no step collects and no `context` declares"),
    (("citty",), "did you mean `city`"),
    (("actor",), "updates `actor`, which no step collects"),
    (("data",), "name the fields that it changes"),
    (("user.costCentre",), "no tool may change who the user is"),
    (("user",), "no tool may change who the user is"),
    ("city", "a list of names"),
    ((1,), "a list of names"),
)
@pytest.mark.row("P18")
def test_invalid_updates_declaration_is_refused_at_build(updates: Any, words: str) -> None:
    step = Step(name="ask", collect={"city": CITY})
    actor = an_actor(routes=(Route(name="trip", steps=(step,)),))
    with pytest.raises(ConfigError, match=words) as caught:
        build_catalog(tools=[a_tool(updates=updates)], actors=[actor], context=CONTEXT)
    assert caught.value.context["field"] == "updates"


def test_updates_of_an_own_tool_are_checked_too() -> None:
    actor = an_actor(own_tools=(a_tool("own", updates=("nowhere",)),))
    with pytest.raises(ConfigError, match="tool `own` updates `nowhere`"):
        build_catalog(tools=[], actors=[actor])


def test_updates_are_part_of_the_hash_but_not_of_the_definition() -> None:
    one, more = catalog_with(), catalog_with("city")
    assert one.hash != more.hash
    assert one.tools()[0].definition == more.tools()[0].definition


JSON = st.recursive(st.one_of(st.none(), st.integers(), st.text(max_size=9)), lambda inner: st.lists(inner, max_size=2))
WISHES = st.dictionaries(st.sampled_from([*NAMES, "user", "user.id", "actor", "tenant", "data"]), JSON, max_size=5)
KNOWN = [catalog_with(*NAMES[:number]) for number in range(len(NAMES) + 1)]


@pytest.mark.row("P18")
@given(st.sampled_from(KNOWN), WISHES, WISHES)
def test_updates_never_reach_a_standard_field(known: Catalog, data: dict[str, Any], context: dict[str, Any]) -> None:
    found = asked(known, data, context).updates
    (tool,) = known.tools()
    assert {*found.data, *found.context} <= {*tool.updates}
    before, after = pinned(), pinned(extra=apply_updates(found, {}))
    plain, changed = context_mapping(before, known.fields), context_mapping(after, known.fields)
    assert {name: changed[name] for name in plain} == plain
    assert {*changed} - {*plain} <= {"project", "limits"}
