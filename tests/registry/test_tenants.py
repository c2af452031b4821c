from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import RegistrationError
from signoff.registry.actor import Route, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.inventory import inventory
from signoff.registry.gates.pipeline import judge
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 9", "totalCost": 1}


def gate(catalog: Catalog, tenant: str, route: str = "") -> tuple[str, str]:
    """Check that offer and judgement agree."""
    ctx = pinned(tenant=tenant, route=route)
    found = judge(catalog, ctx, a_call(), GOOD, Tally())
    text = "book_flight" in [each.name for each in catalog.offered_tools("desk", ctx)]
    assert text == (found.code == "ok")
    return found.gate, found.code


def of(*tools: Tool, **fields: Any) -> Catalog:
    return build_catalog(tools=tools, actors=[an_actor(**fields)])


@pytest.mark.row("V07", "F16")
def test_tool_exists_only_for_its_tenants() -> None:
    for tools in (None, ("book_flight",)):
        known = of(a_tool(tenants=("main", "lab")), tools=tools)
        assert [gate(known, tenant) for tenant in ("main", "lab", "other")] == [
            ("approval", "ok"),
            ("approval", "ok"),
            ("allowlist", "not_available"),
        ]
    assert gate(of(a_tool(tenants=())), "main") == ("allowlist", "not_available")
    assert gate(of(a_tool()), "other") == ("approval", "ok")
    message = judge(of(a_tool(tenants=())), pinned(), a_call(), GOOD, Tally()).message
    assert message.startswith("Unknown tool: book_flight")


def test_shadow_does_not_extend_a_tool_to_other_tenants() -> None:
    far = a_tool(tenants=("lab",))
    for near, code in (
        (a_tool(), "not_available"),
        (ToolUse(tool=a_tool(), loosens="Everybody may on this route."), "ok"),
    ):
        known = of(far, routes=(Route(name="r", tools=(near,)),), shadowing="allow")
        assert [gate(known, tenant, "r")[1] for tenant in ("lab", "main")] == ["ok", code]


@table(("given", "words"), ("main", "a list of names"), (("a b",), "is for `a b`"), ((1,), "a list of names"))
def test_invalid_tenants_are_refused(given: Any, words: str) -> None:
    with pytest.raises(RegistrationError, match=words) as caught:
        of(a_tool(tenants=given))
    assert caught.value.context["field"] == "tenants"


def test_tenants_are_part_of_the_hash_but_not_of_the_definition() -> None:
    plain, limited = a_tool(), a_tool(tenants=("main",))
    assert of(plain).hash != of(limited).hash
    assert plain.definition == limited.definition


def test_inventory_of_a_tenant_holds_only_its_tools() -> None:
    near, far = a_tool(), a_tool(tenants=("acme",))
    routes = (Route(name="r", tools=(near,)),)
    catalog = build_catalog(tools=[far, a_tool("look")], actors=[an_actor(routes=routes, shadowing="allow")])
    rows = {tenant: [row.tool for row in inventory(catalog, tenant)] for tenant in (None, "main", "acme")}
    assert rows["main"] == ["look"]
    assert rows["acme"] == rows[None] == ["book_flight", "look", "book_flight@desk.r", "book_flight@desk.r.*"]
