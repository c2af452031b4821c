from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, handler, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError, RegistrationError
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Route, Step, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.pipeline import judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.program.tool_keywords import BypassRouting
from signoff.registry.registry import ToolRegistry
from signoff.registry.results.reducers import ReducerRegistry, ToolReducer
from signoff.registry.tool import Tool
from signoff.registry.tool_result import ReducerInput, Result

GOOD = {"flight": "TP 531", "totalCost": 10}
WHY: dict[str, Any] = {"scope": "specialist", "justification": "The mailbox is of this one actor alone."}


def refused(**fields: Any) -> tuple[str, str]:
    with pytest.raises(RegistrationError) as caught:
        ToolRegistry([a_tool("email_search", **fields)])
    return str(caught.value.context["field"]), caught.value.message


def shown(catalog: Catalog, route: str = "", step: str = "") -> list[str]:
    return [tool.activity for tool in catalog.tool_view(pinned(route=route, step=step)).visible()]


@pytest.mark.row("B01")
def test_registry_declares_every_tool_exactly_once() -> None:
    known = build_catalog(tools=[a_tool("email_search")], actors=[an_actor("inbox"), an_actor("outbox")])
    [mine], [theirs] = (known.tool_view(pinned(name)).visible() for name in ("inbox", "outbox"))
    assert mine is theirs is known.resolve("email_search")
    with pytest.raises(RegistrationError, match="is already registered"):
        build_catalog(tools=[a_tool("email_search"), a_tool("email_search")])


@pytest.mark.row("B03")
def test_actor_configuration_references_tools_by_name() -> None:
    known = build_catalog(tools=[a_tool("email_search"), a_tool("other")], actors=[an_actor(tools=("email_search",))])
    assert shown(known) == ["email_search"]
    with pytest.raises(ConfigError, match="did you mean `email_search`"):
        build_catalog(tools=[a_tool("email_search")], actors=[an_actor(tools=("email_serch",))])


@pytest.mark.row("B04")
def test_description_is_part_of_the_model_definition() -> None:
    known = build_catalog(tools=[a_tool("email_search", description="Searches the mailbox.")], actors=[an_actor()])
    assert known.definitions(pinned())[0].description == "Searches the mailbox."
    assert refused(description=" ")[0] == "description"


@pytest.mark.row("B07")
def test_handler_must_be_async_and_take_arguments_and_context() -> None:
    def plain(args: dict[str, Any], context: Any) -> str:
        return "done"

    async def short(args: dict[str, Any]) -> str:
        return "done"

    for wrong, words in ((plain, "is not `async def`"), (short, "does not take `(args, context)`")):
        field, message = refused(handler=wrong)
        assert (field, words in message) == ("handler", True)
    assert ToolRegistry([a_tool(handler=handler)]).size == 1


@pytest.mark.row("B08")
def test_manifest_tool_without_a_scope_is_rejected(tmp_path: Path) -> None:
    text = "version: 1\ntools:\n  email_search:\n    handler: registry_kit:handler\n    inputSchema: {type: object}\n"
    file = tmp_path / "signoff.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"tool `email_search` needs `scope`: `generalist`, .* or `specialist`, "):
        load_manifest(file)
    file.write_text(f"{text}    scope: generalist\n")
    assert [tool.scope for tool in load_manifest(file).tools()] == ["generalist"]
    assert refused(scope="application")[0] == "scope"


@pytest.mark.row("B10")
def test_bypass_needs_a_reason() -> None:
    assert refused(**WHY, routing="bypass")[0] == "bypass_routing"
    assert refused(**WHY, routing="bypass", bypass_routing=BypassRouting("todo"))[0] == "bypass_routing"
    reason = BypassRouting("It reads a local cache.")
    assert ToolRegistry([a_tool(**WHY, routing="bypass", bypass_routing=reason)]).size == 1


@pytest.mark.row("B11")
@table("routing", "routed", "bypass")
def test_specialist_needs_a_justification(routing: str) -> None:
    fields: dict[str, Any] = {"scope": "specialist", "routing": routing}
    fields |= {"bypass_routing": BypassRouting("It reads a local cache.")} if routing == "bypass" else {}
    assert refused(**fields)[0] == "justification"


@pytest.mark.row("B12")
@table(("asks", "kind"), (False, "run"), (True, "ask"), (ApprovalPolicy(auto_approve_if="args.totalCost < 50"), "run"))
def test_tool_requires_approval_never_always_or_by_policy(asks: Any, kind: str) -> None:
    known = build_catalog(tools=[a_tool(requires_approval=asks)], actors=[an_actor()])
    assert judge(known, pinned(), a_call(), GOOD, Tally()).kind == kind
    assert refused(requires_approval="sometimes")[0] == "requires_approval"


@pytest.mark.row("B23")
def test_generalist_must_be_routed() -> None:
    assert ToolRegistry([a_tool("email_search", routing="routed")]).size == 1
    assert a_tool("email_search").routing == "routed"
    assert refused(bypass_routing=BypassRouting("It reads a local cache."))[0] == "bypass_routing"


@pytest.mark.row("B26")
def test_generalist_with_bypass_is_rejected_at_registration() -> None:
    field, message = refused(routing="bypass", bypass_routing=BypassRouting("It reads a local cache."))
    assert (field, "may not bypass routing; use `routed` or make it a specialist" in message) == ("routing", True)


@pytest.mark.row("B27")
def test_peer_exposed_specialist_is_rejected_at_registration() -> None:
    field, message = refused(**WHY, peer_exposed=True)
    assert (field, "only generalists may" in message) == ("peer_exposed", True)


@pytest.mark.row("B77")
@table(("tenant", "tier", "kind"), ("acme", "trusted", "run"), ("acme", "standard", "ask"), ("main", "trusted", "ask"))
def test_policy_branches_on_identity_and_tenant(tenant: str, tier: str, kind: str) -> None:
    policy = ApprovalPolicy(auto_approve_if="ctx.tenant == 'acme' && ctx.user.tier == 'trusted'")
    known = build_catalog(tools=[a_tool(requires_approval=policy)], actors=[an_actor()])
    assert judge(known, pinned(tier=tier, tenant=tenant), a_call(), GOOD, Tally()).kind == kind


@pytest.mark.row("P05")
def test_duplicate_tool_raises_with_its_name_in_the_context() -> None:
    with pytest.raises(ConfigError) as caught:
        ToolRegistry([a_tool("get_weather", description="One."), a_tool("get_weather", description="Two.")])
    assert caught.value.context["tool_name"] == "get_weather"


@pytest.mark.row("P06")
def test_resolve_is_exact_and_case_sensitive() -> None:
    registry = ToolRegistry([a_tool("get_weather")])
    assert registry.resolve("Get_Weather") is None
    assert registry.resolve("get_weather") is not None


@pytest.mark.row("P07")
def test_unknown_name_resolves_to_none_without_an_error() -> None:
    registry = ToolRegistry([a_tool("get_weather")])
    assert [registry.resolve(name) for name in ("get_wether", "", "get_weather ", "respond")] == [None] * 4


@pytest.mark.row("P08")
def test_registry_resolves_every_name_offered_to_the_model() -> None:
    known = build_catalog(tools=[a_tool("get_weather"), a_tool("get-time")], actors=[an_actor()])
    offered = [each.name for each in known.definitions(pinned())][:-1]
    found = [known.registry.resolve(name) for name in offered]
    assert [tool.name for tool in found if tool is not None] == offered == ["get-time", "get_weather"]


def search(**fields: Any) -> Tool:
    return a_tool("search", description="Searches.", **fields)


@pytest.mark.row("F04")
def test_tool_of_the_agent_is_available_in_all_routes_and_steps() -> None:
    routes = (Route(name="one", steps=(Step(name="ask"),)), Route(name="two"))
    known = build_catalog(actors=[an_actor(own_tools=(a_tool("agent_search"),), routes=routes)])
    for place in (("", ""), ("one", ""), ("one", "ask"), ("two", "")):
        assert shown(known, *place) == ["agent_search@desk"]


@pytest.mark.row("F05")
def test_tool_of_a_route_is_available_only_in_that_route() -> None:
    support = Route(name="support", tools=(a_tool("create_ticket"),), steps=(Step(name="ask"),))
    known = build_catalog(actors=[an_actor(routes=(support, Route(name="sales")))])
    there = [shown(known, *place) for place in (("support", ""), ("support", "ask"))]
    assert there == [["create_ticket@desk.support"]] * 2
    assert shown(known) == shown(known, "sales") == []


@pytest.mark.row("F06")
def test_step_has_inline_tools_and_references_others_by_id() -> None:
    ask = Step(name="ask", tools=(a_tool("inline_search"), "registered_search"))
    flow = Route(name="flow", mode="only", steps=(ask, Step(name="end")))
    known = build_catalog(tools=[a_tool("registered_search")], actors=[an_actor(routes=(flow,))])
    assert shown(known, "flow", "ask") == ["inline_search@desk.flow.ask", "registered_search"]
    assert shown(known, "flow", "end") == []


@pytest.mark.row("F08")
def test_nearest_tool_of_the_same_id_shadows_the_others() -> None:
    query = Step(name="query", tools=(search(),))
    support = Route(name="support", tools=(ToolUse(tool=search()),), steps=(query, Step(name="end")))
    actor = an_actor(own_tools=(search(),), routes=(support, Route(name="sales")), shadowing="allow")
    known = build_catalog(tools=[search()], actors=[actor, an_actor("other")])
    places = (("support", "query"), ("support", "end"), ("support", ""), ("sales", ""), ("", ""))
    seen = [shown(known, *place) for place in places]
    wanted = ("search@desk.support.query", "search@desk.support", "search@desk.support", "search@desk", "search@desk")
    assert seen == [[name] for name in wanted]
    assert [tool.activity for tool in known.tool_view(pinned("other")).visible()] == ["search"]


@pytest.mark.row("F22")
def test_failing_rule_denies_hides_or_asks() -> None:
    unsure = "ctx.session.size() > 100 || [1][5] == 1"

    def decided(**fields: Any) -> str:
        rules = [fields.pop("rule")] if "rule" in fields else []
        known = build_catalog(tools=[a_tool(**fields)], actors=[an_actor()], policies=rules)
        found = judge(known, pinned(), a_call(), GOOD, Tally())
        return found.code if found.kind == "settled" else found.kind

    assert decided() == "run"
    assert decided(rule=GlobalRule(name="r", rule=unsure, effect="hide")) == "not_available"
    assert decided(rule=GlobalRule(name="r", rule=unsure, effect="deny")) == "denied"
    assert decided(requires_approval=ApprovalPolicy(auto_approve_if=unsure)) == "ask"
    assert decided(requires_approval=ApprovalPolicy(deny_if=unsure, auto_approve_if="true")) == "denied"


def same(result: Result, given: ReducerInput) -> Result:
    return result


@pytest.mark.row("E06")
def test_catalog_is_built_with_or_without_reducers() -> None:
    reducers = ReducerRegistry()
    reducers.register(ToolReducer("look", same))
    assert dict(build_catalog(tools=[a_tool("look")], reducers=reducers).reducers) == {"look": same}
    assert dict(build_catalog(tools=[a_tool("look")]).reducers) == {}


@pytest.mark.row("E35")
@table(
    ("filters", "names"),
    ({}, ["look", "mcp__github__search", "mcp__jira__search", "plot"]),
    ({"allowed_mcp_servers": ("github",)}, ["look", "mcp__github__search", "plot"]),
    ({"allowed_mcp_servers": ()}, ["look", "plot"]),
    ({"allowed_plugins": ()}, ["look", "mcp__github__search", "mcp__jira__search"]),
    ({"allowed_plugins": ("charts",), "allowed_mcp_servers": ()}, ["look", "plot"]),
)
def test_missing_filter_allows_all_a_list_those_and_an_empty_list_none(
    filters: dict[str, Any], names: list[str]
) -> None:
    tools = [
        a_tool("look"),
        a_tool("mcp__github__search"),
        a_tool("mcp__jira__search"),
        a_tool("plot", plugin="charts"),
    ]
    assert sorted(shown(build_catalog(tools=tools, actors=[an_actor(**filters)]))) == names
