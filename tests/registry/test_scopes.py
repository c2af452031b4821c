import dataclasses
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_kit import SCHEMA, a_call, a_tool, an_actor, pinned
from some import some
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import GlobalRule
from signoff.registry.actor import Actor, Route, Step, Surface, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.cel_context import context_fields
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.registry import ToolRegistry
from signoff.registry.scopes.scope_builder import _Build
from signoff.registry.tool import Tool
from signoff.registry.tool_context import ToolContext

GOOD = {"flight": "TP 9", "totalCost": 1}


def own(name: str = "search", says: str = "own", **fields: Any) -> Tool:
    return a_tool(name, description=says, **fields)


def catalog_with(*routes: Route, tools: tuple[str, ...] = ("search", "pay", "note"), **fields: Any) -> Catalog:
    actor = an_actor(**{"routes": routes, "shadowing": "allow", **fields})
    return build_catalog(tools=[a_tool(name, description="registry") for name in tools], actors=[actor])


def summary(catalog: Catalog, route: str = "", step: str = "", **fields: Any) -> list[str]:
    return [each.name for each in catalog.offered_tools("desk", pinned(route=route, step=step, **fields))[:-1]]


def ruled(catalog: Catalog, name: str, route: str = "", step: str = "", **fields: Any) -> JudgedCall:
    return judge(catalog, pinned(route=route, step=step, **fields), a_call(name), GOOD, Tally())


def activity(catalog: Catalog, name: str, route: str = "", step: str = "", **fields: Any) -> str:
    tool = some(ruled(catalog, name, route, step, **fields).tool)
    return tool.activity


def trace(catalog: Catalog, name: str, route: str = "", step: str = "", **fields: Any) -> list[tuple[str, str]]:
    found = catalog.tool_view(pinned(route=route, step=step, **fields)).resolution(name)
    return [(each.layer, each.outcome) for each in found.trace]


EVERYWHERE = ["greet", "note", "pay", "search"]


def trip() -> Catalog:
    steps = (Step(name="ask", tools=(own("quote"), "search")), Step(name="buy"))
    return catalog_with(
        Route(name="trip", tools=(own("seats"),), steps=steps), Route(name="talk"), own_tools=(own("greet"),)
    )


@pytest.mark.row("F33")
def test_tools_of_a_step_come_first_in_their_order() -> None:
    assert summary(trip(), "trip", "ask") == ["quote", "search", "seats", "greet", "note", "pay"]
    assert summary(trip(), "trip") == ["seats", *EVERYWHERE]


@pytest.mark.row("F07", "F32")
def test_nearest_tool_wins_only_in_its_place() -> None:
    steps = (Step(name="inline", tools=(own(),)), Step(name="reference", tools=("search",)), Step(name="nothing"))
    routes = (Route(name="r", tools=(own(),), steps=steps), Route(name="plain"))
    catalog = catalog_with(*routes, own_tools=(own(),))
    assert activity(catalog, "search", "r", "inline") == "search@desk.r.inline"
    assert activity(catalog, "search", "r", "nothing") == activity(catalog, "search", "r") == "search@desk.r"
    assert activity(catalog, "search", "plain") == activity(catalog, "search") == "search@desk"
    reference = some(ruled(catalog, "search", "r", "reference").tool)
    assert (reference.description, reference.activity) == ("registry", "search@desk.r.reference")
    assert activity(catalog_with(Route(name="plain")), "search", "plain") == "search"


@pytest.mark.row("F27", "X06")
@table("tools", ("search", own()), (own(), "search"))
def test_inline_tool_wins_over_a_reference_in_any_order(tools: Any) -> None:
    catalog = catalog_with(Route(name="r", steps=(Step(name="s", tools=tools),)))
    assert activity(catalog, "search", "r", "s") == "search@desk.r.s"
    assert trace(catalog, "search", "r", "s")[:2] == [("step_inline", "won"), ("step_reference", "lost")]


@pytest.mark.row("F27")
@table("around", "actor", "route")
@table("inline_first", True, False)
def test_winning_inline_tool_is_the_one_judged_and_run(around: str, inline_first: bool) -> None:
    async def runs(args: dict[str, Any], context: ToolContext) -> str:
        return "inline"

    inline, outer = own(says="inline", requires_approval=True, handler=runs), (own(says="outer"),)
    step = Step(name="s", tools=(inline, "search") if inline_first else ("search", inline))
    route = Route(name="r", tools=outer if around == "route" else (), steps=(step,))
    catalog = catalog_with(route, own_tools=outer if around == "actor" else ())
    found = ruled(catalog, "search", "r", "s")
    assert found.tool is not None
    assert (found.kind, found.tool.description, found.tool.activity) == ("ask", "inline", "search@desk.r.s")
    assert [each.handler for each in catalog.every_tool if each.activity == "search@desk.r.s"] == [runs]
    assert trace(catalog, "search", "r", "s")[:2] == [("step_inline", "won"), ("step_reference", "lost")]


def test_duplicate_activity_of_an_actor_is_an_error() -> None:
    """Otherwise the later tool would be judged and run instead of the earlier one."""
    actor = an_actor(own_tools=(own(),))
    build = _Build(actor, ToolRegistry(()), context_fields(None))
    build.scopes()
    with pytest.raises(ConfigError, match=r"two tools `search` at `desk`, one of them in `own_tools`; rename"):
        build.scopes()


@pytest.mark.row("F28", "F29", "X06")
def test_reference_is_resolved_in_registry_then_route_then_actor() -> None:
    step = Step(name="s", tools=("search", "seats", "greet"), mode="only")
    catalog = catalog_with(
        Route(name="r", tools=(own("seats"),), steps=(step,)), own_tools=(own("greet"), own("seats"))
    )
    assert [activity(catalog, name, "r", "s") for name in ("search", "seats", "greet")] == [
        "search",
        "seats@desk.r",
        "greet@desk",
    ]
    with pytest.raises(ConfigError, match=r"unknown tool `serach` in `routes.r.steps.s.tools`.*did you mean `search`"):
        catalog_with(Route(name="r", steps=(Step(name="s", tools=("serach",)),)))
    optional = Step(name="s", tools=(ToolUse(tool="serach", optional=True), "pay"), mode="only")
    catalog = catalog_with(Route(name="r", steps=(optional,)))
    assert summary(catalog, "r", "s") == ["pay"]
    found = catalog.tool_view(pinned(route="r", step="s")).resolution("serach").trace[1]
    assert (found.outcome, found.why) == ("absent", "refers to it, but it is optional and not there")


@pytest.mark.row("F09")
def test_resolution_trace_states_the_outcome_of_every_layer() -> None:
    catalog = catalog_with(Route(name="r", tools=(own(),), steps=(Step(name="s", tools=("search", "pay")),)))
    view = catalog.tool_view(pinned(route="r", step="s"))
    found = view.resolution("search")
    assert [(each.layer, each.where, each.outcome, each.why) for each in found.trace] == [
        ("step_inline", "step `s`", "absent", "does not name it"),
        ("step_reference", "step `s`", "won", "is the nearest that names it"),
        ("route", "route `r`", "lost", "step `s` is nearer"),
        ("agent", "actor `desk`", "absent", "does not name it"),
        ("registry", "the registry", "lost", "step `s` is nearer"),
    ]
    assert view.resolution("search") == found
    nothing = view.resolution("nothing")
    assert (nothing.tool, nothing.visible_tool, {each.outcome for each in nothing.trace}) == (None, None, {"absent"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.trace[0].outcome = "won"  # type: ignore[misc]


@pytest.mark.row("F30", "N02")
def test_offered_tool_matches_the_tool_that_runs() -> None:
    steps = (Step(name="s", tools=(own(says="of the step"),)), Step(name="t"))
    catalog = catalog_with(Route(name="r", tools=(own(says="of the route"),), steps=steps))
    for step, says in (("s", "of the step"), ("t", "of the route"), ("", "of the route")):
        offered = {each.name: each.description for each in catalog.offered_tools("desk", pinned(route="r", step=step))}
        tool = some(ruled(catalog, "search", "r", step).tool)
        assert offered["search"] == says == tool.description


@pytest.mark.row("F14", "X07")
def test_layer_adds_to_the_others_or_replaces_them() -> None:
    steps = (Step(name="s", tools=("pay",), mode="only"), Step(name="t", tools=("pay",)))
    catalog = catalog_with(Route(name="r", tools=("note",), mode="only", steps=steps), own_tools=(own("greet"),))
    assert summary(catalog, "r") == ["note"]
    assert summary(catalog, "r", "t") == ["pay", "note"]
    assert summary(catalog, "r", "s") == ["pay"]
    for name in ("note", "search", "greet"):
        found = ruled(catalog, name, "r", "s")
        assert (found.gate, found.code) == ("layer", "not_available")
        assert found.message.startswith(f"Unknown tool: {name}")
    assert ("route", "absent") in trace(catalog, "note", "r", "s")


@pytest.mark.row("F12")
def test_filter_reason_reaches_trace_and_model() -> None:
    why = "payments are for verified customers"
    step = Step(name="s", tool_filter="tool.name != 'search'")
    route = Route(name="r", tool_filter="tool.name != 'pay'", tool_filter_reason=why, steps=(step,))
    catalog = catalog_with(route)
    assert summary(catalog, "r") == ["note", "search"]
    found = catalog.tool_view(pinned(route="r")).resolution("pay")
    assert found.why == f"`tool_filter` of route `r` is false: {why}"
    assert [each.why for each in found.trace if each.outcome == "absent"][-1].endswith(why)
    call = ruled(catalog, "pay", "r", "s")
    assert (call.kind, call.gate, call.code) == ("settled", "layer", "not_available")
    assert call.message == f"Tool pay is not available here: {why}"
    assert ruled(catalog, "search", "r", "s").message.startswith("Unknown tool: search")


@table("hidden", "list", "rule", "surface", "layer", "tenant")
def test_filter_reason_does_not_reveal_a_hidden_tool(hidden: str) -> None:
    step = Step(name="s", tools=("note",), mode="only" if hidden == "layer" else "inherit")
    route = Route(name="r", tool_filter="tool.name != 'pay'", tool_filter_reason="not before noon", steps=(step,))
    tools = [a_tool("pay", tenants=("elsewhere",) if hidden == "tenant" else None), a_tool("note")]
    listed = ("note",) if hidden == "list" else None
    surfaces = {"chat": Surface(exclude=("pay",))} if hidden == "surface" else {}
    rules = [GlobalRule(name="h", rule="tool.name == 'pay'", effect="hide")] if hidden == "rule" else []
    actor = an_actor(tools=listed, routes=(route,), surfaces=surfaces)
    found = ruled(build_catalog(tools=tools, actors=[actor], policies=rules), "pay", "r", "s", channel="chat")
    assert found.message.startswith("Unknown tool: pay")
    assert "noon" not in found.decision.model_dump_json()


def test_filter_reason_without_a_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has a `tool_filter_reason` in route `r`, but no `tool_filter`"):
        catalog_with(Route(name="r", tool_filter_reason="not now"))


@pytest.mark.row("F12")
def test_filter_removes_tools_it_is_not_true_for() -> None:
    steps = (Step(name="s", tool_filter="tool.name != 'note'"), Step(name="t", tool_filter="ctx.tenant == 'none'"))
    catalog = catalog_with(Route(name="r", tool_filter="tool.name != 'pay'", steps=steps))
    assert summary(catalog, "r") == ["note", "search"]
    assert summary(catalog, "r", "s") == ["search"]
    assert summary(catalog, "r", "t") == []
    assert ruled(catalog, "pay", "r", "s").gate == "layer"
    why = catalog.tool_view(pinned(route="r", step="s")).resolution("pay").why
    assert why == "`tool_filter` of route `r` is false"
    with pytest.raises(ConfigError, match=r"actor `desk`: route `r`: `tool_filter`.*nmae"):
        catalog_with(Route(name="r", tool_filter="tool.nmae == 'x'"))


@pytest.mark.row("F15")
def test_filter_selects_tools_by_collected_data() -> None:
    route = Route(name="r", tool_filter="has(ctx.data.category) && ctx.data.category in tool.tags")
    tools = [a_tool("seats", tags=("rail",)), a_tool("bags", tags=("air",))]
    schema = {"type": "object", "properties": {"category": {"type": "string"}}}
    catalog = build_catalog(tools=tools, actors=[an_actor(routes=(route,))], context={"data": schema})
    assert [summary(catalog, "r", extra={"data": {"category": kind}}) for kind in ("rail", "air")] == [
        ["seats"],
        ["bags"],
    ]
    assert summary(catalog, "r", extra={"data": {}}) == summary(catalog, "r") == []


@pytest.mark.row("F11")
def test_step_waits_for_data_and_tool_for_its_step() -> None:
    collect = {"city": {"type": "string", "minLength": 2}, "note": None}
    steps = (Step(name="ask", collect=collect), Step(name="buy", tools=("pay",), requires=("city",)), Step(name="end"))
    catalog = catalog_with(Route(name="r", tools=(ToolUse(tool="note", min_step="end"),), steps=steps))
    assert summary(catalog, "r", "ask") == ["collect", "pay", "search"]
    assert summary(catalog, "r", "end") == ["note", "pay", "search"]
    for data in ({}, {"city": None}, {"city": 7}, {"city": "x"}, None, "city"):
        assert summary(catalog, "r", "buy", extra={"data": data}) == ["search"]
        assert ruled(catalog, "pay", "r", "buy", extra={"data": data}).gate == "layer"
    assert summary(catalog, "r", "buy", extra={"data": {"city": "Porto"}}) == ["pay", "search"]
    assert trace(catalog, "pay", "r", "buy")[1:] == [
        ("step_reference", "absent"),
        ("route", "absent"),
        ("agent", "absent"),
        ("registry", "lost"),
    ]


def test_declared_context_counts_as_step_data() -> None:
    actor = an_actor(routes=(Route(name="r", steps=(Step(name="s", tools=("pay",), requires=("trip",)),)),))
    catalog = build_catalog(tools=[a_tool("pay")], actors=[actor], context={"trip": {"type": "string"}})
    assert [summary(catalog, "r", "s", extra=extra) for extra in ({}, {"trip": 7}, {"trip": "LIS"})] == [
        [],
        [],
        ["pay"],
    ]


@pytest.mark.row("F34", "X23")
def test_transient_tools_come_first_and_only_from_the_catalog() -> None:
    step = Step(name="s", tools=("note",), mode="only")
    catalog = catalog_with(Route(name="r", steps=(step,)))
    assert summary(catalog, "r", "s", transient=("pay",)) == ["pay", "note"]
    assert summary(catalog, "r", "s") == ["note"]
    assert trace(catalog, "pay", "r", "s", transient=("pay",))[0] == ("transient", "won")
    with pytest.raises(ConfigError, match="can have no tool `wire` for one turn"):
        summary(catalog, "r", "s", transient=("wire",))
    assert ruled(catalog, "wire", "r", "s", transient=("wire",)).gate == "resolve"


def test_transient_tool_does_not_bypass_the_tool_list() -> None:
    catalog = build_catalog(tools=[a_tool("pay"), a_tool("note")], actors=[an_actor(tools=("note",))])
    assert summary(catalog, transient=("pay",)) == ["note"]
    assert ruled(catalog, "pay", transient=("pay",)).gate == "allowlist"


@pytest.mark.row("F16")
def test_tool_made_for_one_actor_is_not_shared() -> None:
    def made_for(city: str) -> Tool:
        return own("guide", says=f"Knows {city}.")

    actors = [
        an_actor("porto", own_tools=(made_for("Porto"),)),
        an_actor("faro", own_tools=(made_for("Faro"),)),
        an_actor(),
    ]
    catalog = build_catalog(actors=actors)
    assert catalog.offered_tools("porto", pinned("porto"))[0].description == "Knows Porto."
    assert activity(catalog, "guide", actor="faro") == "guide@faro"
    assert ruled(catalog, "guide").gate == "resolve"


def test_unknown_place_is_an_error_at_start_and_hides_tools_at_gates() -> None:
    catalog = catalog_with(Route(name="r", steps=(Step(name="s"),)))
    for route, step in (("x", ""), ("r", "x"), ("", "s")):
        with pytest.raises(ConfigError, match=r"has no route and step.*known: `r`, `r/s`"):
            summary(catalog, route, step)
        assert ruled(catalog, "pay", route, step).gate == "layer"
    assert summary(catalog_with(), "anywhere", "at all") == ["note", "pay", "search"]


@table(
    ("fields", "words"),
    ({"routes": (Route(name="a b"),)}, "needs names that match"),
    ({"routes": (Route(name="r"), Route(name="r"))}, "has `r` twice in `routes`"),
    ({"routes": (Route(name="r", steps=(Step(name="s"), Step(name="s"))),)}, "twice in `routes.r.steps`"),
    ({"routes": (Route(name="r", tools=("pay", "pay")),)}, "lists `pay` twice in `routes.r.tools`"),
    ({"routes": (Route(name="r", mode="alone"),)}, "`mode` `alone`"),  # type: ignore[arg-type]
    ({"routes": (Route(name="r", tools=(ToolUse(tool="pay", min_step="x"),)),)}, "unknown step `x`"),
    (
        {"routes": (Route(name="r", steps=(Step(name="s", tools=(ToolUse(tool="pay", min_step="s"),)),)),)},
        "only a route",
    ),
    ({"routes": (Route(name="r", steps=(Step(name="s", requires=("x",)),)),)}, "requires `x`"),
    ({"routes": (Route(name="r", tools=("respond",)),)}, "reserved name"),
    ({"routes": (Route(name="r", tools=(ToolUse(tool=own("x"), optional=True),)),)}, "only names are"),
    ({"routes": (Route(name="r", tools=("pay",)),), "tools": ("note",)}, "not in its `tools`"),
    ({"routes": (Route(name="r", tools=(own("x", version=" "),)),)}, "needs a `version`"),
    ({"routes": (Route(name="r", tools=(own("x", place="y"),)),)}, "has a `place`"),
    ({"own_tools": (own("x", read_only=True, fallbacks=("nope",)),)}, "unknown fallback `nope`"),
    ({"own_tools": ("pay",)}, "write names in `tools`"),
    ({"own_tools": (own("x"), own("x"))}, "twice"),
    ({"shadowing": "maybe"}, "`shadowing` `maybe`"),
    ({"tools": ("serach",), "own_tools": (own("search2"),)}, "unknown tool `serach`"),
)
def test_invalid_scopes_are_errors_at_build(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build_catalog(tools=[a_tool(name) for name in ("pay", "note")], actors=[an_actor(**fields)])


@pytest.mark.row("E12")
def test_surface_also_excludes_own_tools_of_an_actor() -> None:
    fields: dict[str, Any] = {"own_tools": (own("greet"),), "surfaces": {"slack": Surface(exclude=("greet", "search"))}}
    catalog = catalog_with(Route(name="r", tools=(own(),)), **fields)
    assert summary(catalog, "r") == ["search", "greet", "note", "pay"]
    assert summary(catalog, "r", channel="slack") == ["note", "pay"]
    assert ruled(catalog, "search", "r", channel="slack").gate == "surface"


def test_collected_field_has_only_one_schema() -> None:
    steps = tuple(Step(name=name, collect={"x": {"type": kind}}) for name, kind in (("s", "string"), ("t", "number")))
    with pytest.raises(ConfigError, match="two schemas"):
        catalog_with(Route(name="r", steps=steps))


def test_hash_covers_scopes_and_is_unchanged_without_them() -> None:
    plain = build_catalog(tools=[a_tool("pay")], actors=[an_actor()]).hash
    assert (
        build_catalog(tools=[a_tool("pay")], actors=[an_actor(shadowing="forbid", routes=(), own_tools=())]).hash
        == plain
    )
    changed = [
        an_actor(own_tools=(own("x"),)),
        an_actor(own_tools=(own("x", says="else"),)),
        an_actor(routes=(Route(name="r"),)),
        an_actor(routes=(Route(name="r", mode="only"),)),
        an_actor(routes=(Route(name="r", tool_filter="true"),)),
        an_actor(routes=(Route(name="r", steps=(Step(name="s"),)),)),
        an_actor(routes=(Route(name="r", steps=(Step(name="s", collect={"x": None}),)),)),
        an_actor(shadowing="allow"),
    ]
    hashes = {build_catalog(tools=[a_tool("pay")], actors=[actor]).hash for actor in changed}
    assert len(hashes | {plain}) == len(changed) + 1


NAMES = ("book", "look", "wipe")


@st.composite
def scoped(draw: st.DrawFn) -> tuple[Catalog, dict[str, Any]]:
    registry = draw(st.lists(st.sampled_from(NAMES), unique=True))
    listed = st.lists(st.sampled_from(NAMES), unique=True)

    def layer(optional: bool = True) -> tuple[Any, ...]:
        entries = [
            ToolUse(tool=own(name, tags=draw(st.sampled_from([(), ("a",)]))))
            if draw(st.booleans())
            else ToolUse(tool=name, optional=True)
            for name in draw(listed)
        ]
        return tuple(entries)

    modes, filters = st.sampled_from(["inherit", "only"]), st.sampled_from(["", "true", "tool.name != 'book'"])
    steps = tuple(
        Step(
            name=name,
            tools=layer(),
            mode=draw(modes),
            tool_filter=draw(filters),
            requires=draw(st.sampled_from([(), ("x",)])),
        )
        for name in ("s", "t")
    )
    steps = (dataclasses.replace(steps[0], collect={"x": None}), steps[1])
    route = Route(name="r", tools=layer(), mode=draw(modes), tool_filter=draw(filters), steps=steps)
    actor = an_actor(
        tools=draw(st.none() | st.just(NAMES)),
        own_tools=tuple(own(name) for name in draw(listed)),
        routes=(route,),
        shadowing="allow",
    )
    actor = _known(actor, registry)
    rules = [GlobalRule(name="r", rule="'a' in tool.tags", effect=draw(st.sampled_from(["hide", "require_approval"])))]
    catalog = build_catalog(
        tools=[a_tool(name, description="registry") for name in registry], actors=[actor], policies=rules
    )
    where = draw(st.sampled_from([("", ""), ("r", ""), ("r", "s"), ("r", "t")]))
    data = draw(st.sampled_from([{}, {"x": 1}]))
    return catalog, {"route": where[0], "step": where[1], "extra": {"data": data}}


def _known(actor: Actor, registry: list[str]) -> Actor:
    names = {*registry, *actor.own_names}
    return (
        dataclasses.replace(actor, tools=None if actor.tools is None else tuple(NAMES))
        if names >= {*NAMES}
        else (dataclasses.replace(actor, tools=None))
    )


@pytest.mark.row("N02")
@settings(max_examples=examples(200), deadline=None)
@given(world=scoped())
def test_advertised_tools_are_the_executable_ones_in_every_place(world: tuple[Catalog, dict[str, Any]]) -> None:
    catalog, where = world
    view = catalog.tool_view(pinned(**where))
    advertised = {tool.name: tool.activity for tool in view.visible() if tool.name != "collect"}
    found = {name: judge(catalog, pinned(**where), a_call(name), GOOD, Tally()) for name in NAMES}
    runs = {name: each.tool.activity for name, each in found.items() if each.kind in ("run", "ask") and each.tool}
    assert runs == advertised
    for name in NAMES:
        traced = view.resolution(name)
        won = [each for each in traced.trace if each.outcome == "won"]
        assert len(won) == (traced.visible_tool is not None)
        assert {each.name for each in catalog.offered_tools("desk", pinned(**where))} >= advertised.keys()


def test_arguments_are_validated_against_the_tool_that_runs() -> None:
    wide = {**SCHEMA, "required": ["flight"]}
    catalog = catalog_with(Route(name="r", tools=(own(input_schema=wide),)))
    for route, code in (("", "input_invalid"), ("r", "ok")):
        found = judge(catalog, pinned(route=route), a_call("search"), {"flight": "x"}, Tally())
        assert found.code == code
