from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import Autonomy, Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.pipeline import judge

TEXT = {"type": "string"}
STEPS = (
    Step(name="gather", collect={"address": TEXT, "card": {"type": "string", "minLength": 4}}),
    Step(name="check", requires=("address",), collect={"checked": None}),
    Step(name="pay", requires=("checked", "approved"), tools=("pay",)),
)
GATHER = {"route": "checkout", "step": "gather"}


def catalog_with(*steps: Step, **more: Any) -> Catalog:
    fields = more.pop("actor", {})
    actor = an_actor(routes=(Route(name="checkout", steps=steps or STEPS),), **fields)
    given = {"context": {"approved": {"type": "boolean"}}, "default_approvers": ["user:ana"], **more}
    return build_catalog(tools=[a_tool("pay")], actors=[actor], **given)


@table(
    ("step", "have", "found"),
    ("", "", "gather"),
    ("gather", "", "gather"),
    ("gather", "address", "gather"),
    ("gather", "address card", "check"),
    ("gather", "address card checked", "check"),
    ("gather", "address card checked approved", "pay"),
    ("", "address card checked approved", "pay"),
    ("check", "", "check"),
    ("check", "checked approved", "pay"),
    ("pay", "address card checked approved", "pay"),
    ("gone", "address card", "gone"),
)
def test_step_is_left_when_its_data_is_complete(step: str, have: str, found: str) -> None:
    scopes = catalog_with().scopes["desk"]
    assert scopes.advance("checkout", step, {*have.split()}) == found
    assert scopes.advance("gone", step, {*have.split()}) == step


def test_first_step_without_collected_data_is_not_entered() -> None:
    scopes = catalog_with(Step(name="look"), Step(name="pay")).scopes["desk"]
    assert [scopes.advance("checkout", step, frozenset()) for step in ("", "look")] == ["", "look"]


def test_first_step_waits_for_its_required_fields() -> None:
    first = Step(name="gather", requires=("approved",), collect={"address": TEXT})
    scopes = catalog_with(first).scopes["desk"]
    assert [scopes.advance("checkout", "", have) for have in (frozenset[str](), {"approved"})] == ["", "gather"]


def test_collect_takes_the_fields_of_its_step_with_their_schemas() -> None:
    offered = {tool.name: tool for tool in catalog_with().offered_tools("desk", pinned(**GATHER))}
    assert offered["collect"].parameters["properties"] == STEPS[0].collect
    check = catalog_with().offered_tools("desk", pinned(route="checkout", step="check", extra={"address": "x"}))
    assert [tool.name for tool in check] == ["pay", "respond"]


def test_step_may_list_only_names_to_collect() -> None:
    step = Step(name="gather", collect=["address", "card"])  # type: ignore[arg-type]
    assert step.collect == {"address": None, "card": None}


def test_schema_with_its_own_definitions_is_checked_on_storage() -> None:
    schema = {"$ref": "#/$defs/street", "$defs": {"street": {"type": "string"}}}
    catalog = catalog_with(Step(name="gather", collect={"address": schema}))
    offered = {tool.name: tool for tool in catalog.offered_tools("desk", pinned(**GATHER))}
    assert offered["collect"].parameters["properties"] == {"address": {}}
    assert catalog.scopes["desk"].available_fields({"data": {"address": 7}}) == frozenset()


@table(
    ("args", "code"),
    ({"address": "Rua 1"}, "ok"),
    ({"address": "Rua 1", "card": "1234"}, "ok"),
    ({"address": 7}, "input_invalid"),
    ({"card": "1"}, "input_invalid"),
    ({"phone": "1"}, "input_invalid"),
    ({"checked": True}, "input_invalid"),
    ({}, "input_invalid"),
)
def test_collect_rejects_unknown_names_and_invalid_values(args: dict[str, Any], code: str) -> None:
    found = judge(catalog_with(), pinned(**GATHER), a_call("collect"), args, Tally())
    assert (found.code or "ok") == code


@table(("route", "step"), ("", ""), ("checkout", ""), ("checkout", "pay"))
def test_collect_exists_only_at_its_step(route: str, step: str) -> None:
    found = judge(catalog_with(), pinned(route=route, step=step), a_call("collect"), {"address": "x"}, Tally())
    assert found.code == "not_available"


@table("fields", {"tools": ("pay",)}, {"autonomy": Autonomy(unasked_if="false")})
def test_collect_needs_no_tool_list_and_no_approval(fields: dict[str, Any]) -> None:
    found = judge(catalog_with(actor=fields), pinned(**GATHER), a_call("collect"), {"address": "x"}, Tally())
    assert found.kind == "run"


@table(("effect", "code"), ("hide", "not_available"), ("deny", "denied"))
def test_rule_may_hide_or_deny_collect(effect: Any, code: str) -> None:
    catalog = catalog_with(policies=[GlobalRule(name="r", rule="tool.name == 'collect'", effect=effect)])
    found = judge(catalog, pinned(**GATHER), a_call("collect"), {"address": "x"}, Tally())
    assert found.code == code


def test_author_may_not_name_a_tool_collect() -> None:
    why = r"has a reserved name: a step that collects data brings `collect` itself.*shop\.py:4"
    with pytest.raises(ConfigError, match=why):
        build_catalog(tools=[a_tool("collect", site="shop.py:4")], actors=[an_actor()])
    with pytest.raises(ConfigError, match="`Collect` has a reserved name"):
        build_catalog(tools=[a_tool("Collect")], actors=[an_actor()])
    with pytest.raises(ConfigError, match="has a reserved name"):
        build_catalog(actors=[an_actor(own_tools=(a_tool("collect"),))])
    with pytest.raises(ConfigError, match="lists `collect`; a step that collects data adds it"):
        build_catalog(tools=[a_tool("pay")], actors=[an_actor(tools=("collect",))])
    with pytest.raises(ConfigError, match=r"lists `collect` in `routes\.checkout\.steps\.s\.tools`"):
        catalog_with(Step(name="s", tools=("collect",)))
