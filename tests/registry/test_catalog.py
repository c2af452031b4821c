from typing import Any

import pytest
from registry_kit import a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import TurnLimits
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person, Principal
from signoff.people.directory import FixedDirectory, development_directory, principal_of
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.catalog import build_catalog
from signoff.registry.cel_context import context_fields, context_mapping
from signoff.registry.gates.inventory import inventory

ASK_RULE = GlobalRule(name="r", rule="true", effect="require_approval")


@pytest.mark.row("B45", "N23")
def test_offered_tools_come_in_actor_order_with_respond_last() -> None:
    tools = [a_tool("b"), a_tool("a"), a_tool("c")]
    actors = [an_actor(tools=("c", "a")), an_actor("every"), an_actor("none", tools=())]
    catalog = build_catalog(tools=tools, actors=actors)
    assert [offer.name for offer in catalog.offered_tools("desk", pinned())] == ["c", "a", "respond"]
    assert [offer.name for offer in catalog.offered_tools("every", pinned())] == ["a", "b", "c", "respond"]
    assert [offer.name for offer in catalog.offered_tools("none", pinned())] == ["respond"]


@pytest.mark.row("B46")
def test_respond_is_offered_to_all_actors_and_never_listed() -> None:
    catalog = build_catalog(tools=[a_tool()], actors=[an_actor()])
    assert catalog.registry.resolve("respond") is None
    assert "respond" not in [row.tool for row in inventory(catalog)]
    with pytest.raises(ConfigError, match="lists `respond`"):
        build_catalog(actors=[an_actor(tools=("respond",))])


@pytest.mark.row("X13", "B47", "N01")
@table(
    ("parts", "words"),
    ({"actors": [an_actor(tools=("book_fligth",))]}, "unknown tool `book_fligth`; did you mean `book_flight`?"),
    ({"actors": [an_actor(tools=("Book_flight",))]}, "unknown tool `Book_flight`; did you mean `book_flight`?"),
    ({"actors": [an_actor(tools=("book_flight", "book_flight"))]}, "twice"),
    ({"actors": [an_actor(), an_actor()]}, "declared twice"),
    ({"actors": [an_actor("the desk")]}, "matches"),
    ({"actors": [an_actor(model=" ")]}, "has no model"),
    ({"actors": [an_actor(model_settings={"x": {1}})]}, "not plain JSON"),
    ({"default_approvers": ("approvers",)}, "neither `role:<role>`, `user:<id>` nor `oncall:<rota>`"),
    ({"tools": [a_tool(requires_approval=True)], "default_approvers": ()}, "names no `approvers`"),
    ({"policies": [ASK_RULE], "default_approvers": ()}, "no default approvers"),
    ({"tools": [a_tool(requires_approval=ApprovalPolicy(deny_if="args.totalCots > 1.0"))]}, "totalCost"),
    ({"policies": [GlobalRule(name="r", rule="tool.nmae == 'x'", effect="hide")]}, "`r`"),
    ({"context": {"user.tier": {"type": "string"}}}, "cannot be declared again"),
    ({"context": {"user": {"type": "object"}}}, "cannot be declared again"),
    ({"context": {"user.tier.x": {"type": "string"}}}, "cannot be declared again"),
    ({"context": {"actor.x": {"type": "string"}}}, "cannot be declared again"),
    ({"context": {"a-b": {"type": "string"}}}, "dotted name"),
    ({"context": {"a": {"type": "object"}, "a.b": {"type": "string"}}}, "overlap"),
    ({"context": {"a": {"type": "strin"}}}, "not valid JSON Schema"),
    ({"people": [Person(id="a"), Person(id="a")]}, "declared twice"),
    ({"people": [Person(id="a b")]}, "does not match"),
    ({"people": [Person(id="a", roles=("x y",))]}, "does not match"),
)
def test_invalid_declarations_are_errors_at_build(parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_catalog(**{"tools": [a_tool()], **parts})
    assert words in caught.value.message
    assert not caught.value.message.endswith(".")


def test_unknown_name_error_suggests_the_nearest() -> None:
    catalog = build_catalog(tools=[a_tool()], actors=[an_actor()])
    with pytest.raises(ConfigError, match="no actor `dsk`; did you mean `desk`"):
        catalog.actor("dsk")
    with pytest.raises(ConfigError, match="known: `desk`"):
        catalog.actor("zzz")
    with pytest.raises(ConfigError, match="did you mean `book_flight`"):
        catalog.policy("book_fligth")


def test_catalog_hash_changes_with_every_declaration_only() -> None:
    base: dict[str, Any] = {"tools": [a_tool(), a_tool("b")], "actors": [an_actor(), an_actor("x")]}
    plain = build_catalog(**base).hash
    same = [{"tools": base["tools"][::-1]}, {"actors": base["actors"][::-1]}, {"people": [Person(id="ana")]}]
    other: list[dict[str, Any]] = [
        {"tools": [a_tool(description="x"), a_tool("b")]},
        {"tools": [a_tool(requires_approval=True), a_tool("b")]},
        {"actors": [an_actor(limits=TurnLimits(calls=3)), an_actor("x")]},
        {"actors": [an_actor(tools=()), an_actor("x")]},
        {"policies": [ASK_RULE]},
        {"default_approvers": ("user:ana",)},
        {"context": {"project": {"type": "string"}}},
    ]
    assert {build_catalog(**{**base, **each}).hash for each in same} == {plain}
    hashes = [build_catalog(**{**base, **each}).hash for each in other]
    assert len({plain, *hashes}) == len(other) + 1


def test_inventory_names_approvers_and_rules() -> None:
    maybe = ApprovalPolicy(auto_approve_if="args.totalCost < 50.0", deny_if="args.totalCost > 900.0", level="admin")
    tools = [a_tool("a"), a_tool("b", requires_approval=True), a_tool("c", requires_approval=maybe)]
    rows = inventory(build_catalog(tools=tools, actors=[an_actor(tools=("a",)), an_actor("all")]))
    assert [(row.tool, row.needs, row.approvers, row.actors) for row in rows] == [
        ("a", "auto", (), ("desk", "all")),
        ("b", "asks", ("role:approvers",), ("all",)),
        ("c", "maybe asks, may be denied", ("role:admin",), ("all",)),
    ]
    assert rows[2].rules == ("deny_if: args.totalCost > 900.0", "auto_approve_if: args.totalCost < 50.0")


@pytest.mark.row("P18", "B76")
def test_pinned_context_takes_declared_extras_but_no_standard_fields() -> None:
    fields = context_fields({"user.costCentre": {"type": "string"}, "project.code": {"type": "integer"}})
    extra = {"user.costCentre": "K1", "project.code": "no integer", "user.tier": "trusted", "user": {}, "other": 1}
    seen = context_mapping(pinned(extra=extra), fields)
    assert seen["user"] == {
        "id": "guest",
        "person_id": "guest",
        "name": "",
        "tier": "standard",
        "roles": [],
        "locale": "en",
        "costCentre": "K1",
    }
    assert set(seen) == {"actor", "session", "turn", "tenant", "channel", "route", "step", "user"}
    assert "costCentre" not in context_mapping(pinned(extra=extra))["user"]


@pytest.mark.row("V07")
def test_directory_is_separate_per_tenant() -> None:
    directory = FixedDirectory([Person(id="ana"), Person(id="ana", tenant="other", tier="trusted")])
    assert directory.find("ana").tier == "standard"
    assert directory.find("ana", "other").tier == "trusted"
    assert directory.find("Ana") is None
    assert directory.find("ana", "third") is None
    assert [person.tenant for person in directory.all()] == ["main", "other"]
    assert len(directory.all("other")) == 1


def test_built_in_people_exist_unless_declared() -> None:
    directory = development_directory([Person(id="guest", tier="trusted")])
    assert directory.find("guest").tier == "trusted"
    assert directory.find("approver").roles == ("approvers",)
    assert development_directory().find("guest").tier == "standard"


def test_principal_is_the_person_without_their_tenant() -> None:
    person = Person(id="ana", name="Ana", tier="trusted", roles=("x",), locale="de")
    known = FixedDirectory([person])
    assert principal_of(person, known) == Principal(user="ana", name="Ana", tier="trusted", roles=("x",), locale="de")
