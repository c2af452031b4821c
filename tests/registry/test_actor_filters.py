import dataclasses
from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import ExternalAgent, Route, Surface
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.function import tool
from signoff.registry.gates.actor_filters import mcp_parts
from signoff.registry.gates.inventory import inventory
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.handler_adapters import run_elsewhere
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 531", "totalCost": 420}
TOOLS = (
    a_tool("book", toolset="travel"),
    a_tool("look"),
    a_tool("wipe", tags=("destructive",)),
    a_tool("chart", plugin="maps"),
    a_tool("mcp__github__search"),
    a_tool("mcp__github__open__issue"),
    a_tool("mcp__files__read"),
    a_tool("mcp__maps__route", plugin="maps"),
)
OWN = {"book", "look", "wipe"}
GITHUB = {"mcp__github__search", "mcp__github__open__issue"}
EVERY = {tool.name for tool in TOOLS}


ALWAYS = a_tool("own", always_include=True)


def catalog(*policies: GlobalRule, more: tuple[Tool, ...] = (), **fields: Any) -> Catalog:
    return build_catalog(tools=(*TOOLS, *more), actors=(an_actor(**fields),), policies=policies)


def seen(found: Catalog, **ctx: Any) -> list[str]:
    """Check that exactly the returned tools may be called. `respond` is left out."""
    advertised = [offer.name for offer in found.offered_tools("desk", pinned(**ctx))][:-1]
    callable_ = [name for name in found.registry.list() if ruled(found, name, **ctx).kind == "run"]
    assert sorted(advertised) == callable_
    return advertised


def ruled(found: Catalog, name: str, **ctx: Any) -> JudgedCall:
    return judge(found, pinned(**ctx), a_call(name), GOOD, Tally())


@pytest.mark.row("X08", "E33")
def test_missing_filter_passes_all_and_an_empty_one_passes_none() -> None:
    assert set(seen(catalog())) == EVERY
    assert seen(catalog(tools=())) == []
    assert set(seen(catalog(allowed_plugins=()))) == EVERY - {"chart", "mcp__maps__route"}
    assert set(seen(catalog(allowed_mcp_servers=()))) == OWN | {"chart"}
    assert set(seen(catalog(allowed_mcp_tools={}))) == EVERY


@pytest.mark.row("E05")
def test_toolset_limits_the_tools_of_an_actor() -> None:
    own = ("look", "book", "wipe")
    assert seen(catalog(tools=own, toolset="travel")) == ["book"]


@pytest.mark.row("E31")
def test_toolset_filters_only_built_in_tools() -> None:
    assert set(seen(catalog(toolset="travel"))) == (EVERY - OWN) | {"book"}
    assert set(seen(catalog(more=(ALWAYS,), toolset="travel"))) == (EVERY - OWN) | {"book", ALWAYS.name}


@pytest.mark.row("E13")
def test_tool_list_is_the_boundary_unless_a_server_or_plugin_filter_applies() -> None:
    assert seen(catalog(tools=("look", "book"))) == ["look", "book"]
    found = catalog(tools=("look", "book"), allowed_mcp_servers=("github",))
    assert seen(found) == ["look", "book", "mcp__github__open__issue", "mcp__github__search"]
    only = catalog(tools=("mcp__files__read",), allowed_mcp_servers=("github",))
    assert set(seen(only)) == GITHUB, "a list does not bring back what a filter leaves out"
    refused = ruled(found, "mcp__files__read")
    assert (refused.gate, refused.code) == ("allowlist", "not_available")


@pytest.mark.row("E02")
def test_servers_and_plugins_are_allowed_by_name() -> None:
    assert set(seen(catalog(allowed_mcp_servers=("github",)))) == OWN | GITHUB | {"chart"}
    assert set(seen(catalog(allowed_plugins=("maps",)))) == EVERY


@pytest.mark.row("E36")
def test_server_tools_are_allowed_by_their_bare_names() -> None:
    found = catalog(allowed_mcp_tools={"github": ("open__issue",)})
    assert set(seen(found)) == EVERY - {"mcp__github__search"}
    assert set(seen(catalog(allowed_mcp_tools={"github": ()}))) == EVERY - GITHUB
    assert mcp_parts("mcp__github__open__issue") == ("github", "open__issue")


def test_tool_must_pass_all_filters_together() -> None:
    found = catalog(
        toolset="travel",
        allowed_plugins=("maps",),
        allowed_mcp_servers=("github",),
        allowed_mcp_tools={"github": ("search",)},
    )
    assert set(seen(found)) == {"book", "chart", "mcp__github__search"}


@pytest.mark.row("E37")
def test_tool_of_server_and_plugin_must_pass_both_filters() -> None:
    both: dict[str, Any] = {"allowed_mcp_servers": ("maps",), "allowed_plugins": ("maps",)}
    for tools in (None, ()):
        assert "mcp__maps__route" in seen(catalog(tools=tools, **both))
        for name in both:
            assert "mcp__maps__route" not in seen(catalog(tools=tools, **(both | {name: ()})))
    assert seen(catalog(tools=(), allowed_plugins=("maps",))) == ["chart"]


@pytest.mark.row("E12")
def test_excluded_tool_is_not_available_on_that_surface() -> None:
    out = Surface(exclude=("book", "chart", "mcp__github__search"))
    found = catalog(surfaces={"whatsapp": out})
    assert set(seen(found, channel="whatsapp")) == EVERY - set(out.exclude)
    assert set(seen(found, channel="slack")) == set(seen(found)) == EVERY
    for name in out.exclude:
        refused = ruled(found, name, channel="whatsapp")
        assert (refused.kind, refused.gate, refused.code) == ("settled", "surface", "not_available")
        assert refused.message == f"Tool {name} is not available on this surface"


def test_turn_of_another_agent_sees_only_exposed_tools() -> None:
    own = a_tool("own", scope="specialist", justification="only the desk does this")
    tools = [a_tool("told", peer_exposed=True), a_tool("kept"), own]
    found = build_catalog(tools=tools, actors=[an_actor()])
    assert seen(found, channel="api") == ["kept", "own", "told"]
    assert seen(found, channel="peer") == ["told"]
    for name in ("kept", "own", "nothing"):
        refused = ruled(found, name, channel="peer")
        assert (refused.code, refused.message.partition(";")[0]) == ("not_available", f"Unknown tool: {name}")
    reads = build_catalog(tools=tools, actors=[an_actor(read_rest=True)])
    offered = [offer.name for offer in reads.offered_tools("desk", pinned(channel="peer"))]
    assert sorted(offered) == ["read_rest", "respond", "told"]


def test_surface_does_not_reveal_hidden_or_foreign_tools() -> None:
    hide = GlobalRule(name="h", rule="'destructive' in tool.tags", effect="hide")
    out = {"whatsapp": Surface(exclude=("wipe", "look"))}
    found = catalog(hide, tools=("book",), surfaces=out)
    for name in ("wipe", "look"):
        refused = ruled(found, name, channel="whatsapp")
        assert refused.gate == "surface"
        assert refused.message.startswith(f"Unknown tool: {name}")


@pytest.mark.row("X25")
def test_always_include_overrides_toolsets_but_no_list_or_rule() -> None:
    more: dict[str, Any] = {"more": (ALWAYS,)}
    for fields in ({}, {"toolset": "travel"}, {"toolset": "travel", "tools": ("look", "own")}):
        assert ALWAYS.name in seen(catalog(**more, **fields))
    for fields in ({"tools": ()}, {"tools": ("look",)}, {"tools": ("look",), "toolset": "travel"}):
        found = catalog(**more, **fields)
        assert ALWAYS.name not in seen(found)
        assert ruled(found, ALWAYS.name).gate == "allowlist"
    excluded = catalog(**more, tools=("look", "own"), surfaces={"whatsapp": Surface(exclude=("own", "look"))})
    assert seen(excluded, channel="whatsapp") == []
    rule = GlobalRule(name="h", rule="tool.name in ['own', 'look']", effect="hide")
    hidden = catalog(rule, **more, tools=("look", "own"))
    assert seen(hidden) == []
    assert [ruled(hidden, name).gate for name in ("own", "look")] == ["tag_policy"] * 2


@pytest.mark.row("E34")
def test_always_include_applies_to_definitions_and_execution_alike() -> None:
    route = Route(name="r", tools=("look",), mode="only")
    filtered = Route(name="f", tool_filter="tool.name != 'own'")
    found = catalog(more=(ALWAYS,), toolset="travel", routes=(route, filtered))
    assert "own" in seen(found)
    assert "own" in {each.name for each in found.definitions(pinned())}
    assert ruled(found, "own").kind == "run"
    for name in ("r", "f"):
        assert "own" not in seen(found, route=name)
        assert ruled(found, "own", route=name).gate == "layer"
    assert "own" not in seen(catalog(more=(dataclasses.replace(ALWAYS, always_include=False),), toolset="travel"))
    assert "own" in seen(catalog(more=(made,), toolset="travel"))


@tool(scope="generalist", name="own", always_include=True)
async def made(flight: str, totalCost: float) -> str:  # noqa: N803 - the name in the one schema of these tests
    """Built from a function."""
    return flight


LIST = "must be a list of names, `[]` for none, or left out for all"
MAPPING = "must be a mapping, or left out"


def unknown(name: str, instead: str) -> str:
    return f"names `{name}`, which no tool has; {instead}"


@table(
    ("fields", "field", "value", "words"),
    ({"toolset": ""}, "toolset", "", unknown("", "known: `travel`")),
    ({"toolset": "travle"}, "toolset", "travle", unknown("travle", "did you mean `travel`?")),
    ({"allowed_plugins": "maps"}, "allowed_plugins", "maps", LIST),
    ({"allowed_plugins": ("map",)}, "allowed_plugins", "map", unknown("map", "did you mean `maps`?")),
    ({"allowed_plugins": ("",)}, "allowed_plugins", "", unknown("", "known: `maps`")),
    ({"allowed_mcp_servers": ("githb",)}, "allowed_mcp_servers", "githb", unknown("githb", "did you mean `github`?")),
    ({"allowed_mcp_tools": ("github",)}, "allowed_mcp_tools", ("github",), MAPPING),
    ({"allowed_mcp_tools": {"githb": ()}}, "allowed_mcp_tools", "githb", unknown("githb", "did you mean `github`?")),
    ({"allowed_mcp_tools": {"github": "search"}}, "allowed_mcp_tools.github", "search", LIST),
    (
        {"allowed_mcp_tools": {"github": ("serch",)}},
        "allowed_mcp_tools.github",
        "serch",
        unknown("serch", "did you mean `search`?"),
    ),
    (
        {"allowed_mcp_tools": {"github": ("read",)}},
        "allowed_mcp_tools.github",
        "read",
        unknown("read", "known: `open__issue`, `search`"),
    ),
    ({"surfaces": ("book",)}, "surfaces", ("book",), MAPPING),
    ({"surfaces": {"whatsapp": ("book",)}}, "surfaces.whatsapp", ("book",), "must be a `Surface`"),
    (
        {"surfaces": {"w": Surface(exclude=("bok",))}},
        "surfaces.w.exclude",
        "bok",
        unknown("bok", "did you mean `book`?"),
    ),
)
def test_filter_without_effect_is_refused(fields: dict[str, Any], field: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        catalog(**fields)
    assert refused.value.context == {"actor": "desk", "field": field, "value": value}
    assert refused.value.message == f"actor `desk`: `{field}` {words}"


def test_filter_over_an_absent_field_says_that_no_tool_has_it() -> None:
    with pytest.raises(ConfigError, match=r"names `maps`, which no tool has; known: none$"):
        build_catalog(tools=(a_tool("book"),), actors=(an_actor(allowed_plugins=("maps",)),))


def test_filter_over_tools_of_a_server_applies_to_that_server_only() -> None:
    assert seen(catalog(tools=("look",), allowed_mcp_tools={"github": ("search",)})) == ["look", "mcp__github__search"]


def test_hash_covers_filters_and_separates_missing_from_empty() -> None:
    given: list[dict[str, Any]] = [
        {},
        {"toolset": "travel"},
        {"allowed_plugins": ()},
        {"allowed_mcp_servers": ()},
        {"allowed_mcp_tools": {}},
        {"surfaces": {"w": Surface(exclude=("book",))}},
        {"surfaces": {"x": Surface(exclude=("book",))}},
    ]
    assert len({catalog(**fields).hash for fields in given}) == len(given)


def test_filters_apply_to_own_tools_of_the_actor() -> None:
    mine = a_tool("mine", plugin="own")
    found = catalog(own_tools=(mine,), allowed_plugins=("own",), surfaces={"w": Surface(exclude=("mine",))})
    assert "mine" in [offer.name for offer in found.offered_tools("desk", pinned())]
    assert "mine" not in [offer.name for offer in found.offered_tools("desk", pinned(channel="w"))]
    assert ruled(found, "mine", channel="w").gate == "surface"
    assert ruled(found, "mine").kind == "run"


@table("channel", "emial ", "", "e-mail\n", "web chat")
def test_surface_needs_a_valid_channel_name(channel: str) -> None:
    """A typo in the name would expose the excluded tools."""
    with pytest.raises(ConfigError) as caught:
        catalog(surfaces={channel: Surface(exclude=("book",))})
    why = f"is for `{channel}`, which is no channel's name: it must match `^[A-Za-z0-9_-]{{1,48}}$`"
    assert caught.value.message.endswith(f": `surfaces` {why}")
    assert (caught.value.context["field"], caught.value.context["value"]) == ("surfaces", channel)


@table("agent", True, False)
def test_external_tool_is_visible_only_to_external_agents(agent: bool) -> None:
    """Another actor would never use the permit."""
    outside = a_tool("refund", runs="external", handler=run_elsewhere)
    fields = {"model": "", "external": ExternalAgent(acts_for=("user:guest",))} if agent else {}
    found = build_catalog(tools=(outside, a_tool("look")), actors=(an_actor(**fields),))
    kinds = {name: ruled(found, name).kind for name in found.registry.list()}
    assert kinds == {"look": "run", "refund": "run" if agent else "settled"}
    users = {row.tool: row.actors for row in inventory(found)}
    assert users == {"look": ("desk",), "refund": ("desk",) if agent else ()}
