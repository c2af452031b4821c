from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.contracts.names import READ_REST
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Route
from signoff.registry.built_in_tools import READ_REST_TOOL
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.function import tool
from signoff.registry.gates.pipeline import judge
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.manifest.loader import load_manifest

ARGS = {"flight": "TP 531", "totalCost": 420}


@tool(scope="generalist")
async def look(city: str) -> str:
    """Look around."""
    return city


@pytest.mark.row("B02")
def test_catalog_holds_only_registered_tools(tmp_path: Path) -> None:
    manifest = tmp_path / "signoff.yaml"
    manifest.write_text("version: 1\n")
    assert look.name == "look"
    assert build_catalog().tools() == load_manifest(manifest).tools() == ()
    assert [each.name for each in build_catalog(tools=[look], actors=[an_actor()]).tools()] == ["look"]
    asked = build_catalog(actors=[an_actor(read_rest=True)])
    assert asked.tools() == (READ_REST_TOOL,)
    with pytest.raises(ConfigError, match="reserved name"):
        build_catalog(tools=[READ_REST_TOOL])
    assert READ_REST_TOOL.name == READ_REST


@pytest.mark.row("P14")
def test_invalid_setup_is_an_error_and_changes_no_rule(tmp_path: Path) -> None:
    gated, free = a_tool(requires_approval=True), a_tool(requires_approval=False)
    with pytest.raises(ConfigError, match="already"):
        build_catalog(tools=[gated, free])
    with pytest.raises(ConfigError, match="shadow"):
        build_catalog(tools=[gated], actors=[an_actor(own_tools=(free,))])
    ways = {
        "listed": an_actor("listed", tools=("book_flight",)),
        "unlisted": an_actor("unlisted"),
        "shadowed": an_actor("shadowed", own_tools=(free,), shadowing="allow"),
        "routed": an_actor("routed", routes=(Route(name="r", tools=("book_flight",)),)),
    }
    catalog = build_catalog(tools=[gated], actors=ways.values())
    for name in ways:
        assert kind(catalog, name) == kind(catalog, name, route="r" if name == "routed" else "") == "ask"
        found = judge(catalog, pinned(name), a_call("book_flights"), ARGS, Tally())
        assert (found.code, found.gate) == ("not_available", "resolve")
        assert "did you mean `book_flight`" in found.message


def kind(catalog: Catalog, actor: str, **where: Any) -> str:
    return judge(catalog, pinned(actor, **where), a_call(), ARGS, Tally()).kind


@pytest.mark.row("F58")
def test_tool_selection_is_stable_and_cached_per_context() -> None:
    tools = [a_tool(name) for name in ("b", "a", "c")]
    routes = (Route(name="r", mode="only", tools=("c",)), Route(name="s", tools=("b",)))
    one, other = (
        build_catalog(tools=order, actors=[an_actor(tools=("c", "b", "a"), routes=routes)])
        for order in (tools, tools[::-1])
    )
    for route, expected in (("", ["c", "b", "a"]), ("r", ["c"]), ("s", ["b", "c", "a"])):
        seen = [[each.name for each in catalog.tool_view(pinned(route=route)).visible()] for catalog in (one, other)]
        assert seen == [expected] * 2
        assert one.tool_view(pinned(route=route)) is one.tool_view(pinned(route=route))
    assert one.tool_view(pinned(route="r")) is not one.tool_view(pinned(route="s"))


@pytest.mark.row("F58")
def test_permission_depends_on_the_context_and_definition_on_the_version() -> None:
    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        return Permission.allow()

    catalog = build_catalog(tools=[a_tool(check_permissions=check)], actors=[an_actor()])
    assert judge(catalog, pinned("desk"), a_call(), ARGS, Tally()).awaits_permission
    assert a_tool(version="2").definition != a_tool(version="1").definition
    assert a_tool(version="2", description="Else.").definition == a_tool(version="2").definition


@pytest.mark.row("E54")
@table(("command", "expected"), ("ls", "run"), ("cd / && rm -rf .", "settled"), ("RM -RF .", "run"), ("", "run"))
def test_deny_rule_over_text_overrides_an_approving_rule(command: str, expected: str) -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    policy = ApprovalPolicy(deny_if="args.command.contains('rm -rf')", auto_approve_if="true")
    terminal = a_tool("terminal", input_schema=schema, requires_approval=policy)
    catalog = build_catalog(tools=[terminal], actors=[an_actor()])
    found = judge(catalog, pinned(), a_call("terminal"), {"command": command}, Tally())
    assert (found.kind, found.code) == (expected, "denied" if expected == "settled" else "ok")
