import logging
from collections.abc import Sequence
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_kit import a_call, a_tool, an_actor, pinned
from some import some
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.contracts.usage import UsageLimit
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, ShownArguments
from signoff.registry.actor import Route, Step, ToolUse
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.inventory import inventory
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import judge
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool import Tool

CHEAP = ApprovalPolicy(auto_approve_if="args.totalCost < 50.0")
WIDE = {"type": "object", "properties": {name: {"type": "string"} for name in ("flight", "totalCost", "pin")}}
REASON = "The route's desk has a limit of its own with the bank."


def over(near: Tool | ToolUse, far: Tool, shadowing: str = "allow", **fields: Any) -> Catalog:
    actor = an_actor(routes=(Route(name="r", tools=(near,)),), shadowing=shadowing)
    return build_catalog(tools=[far], actors=[actor], **fields)


def ruled(catalog: Catalog, cost: float = 20.0, route: str = "r", step: str = "", **fields: Any) -> JudgedCall:
    ctx = pinned(route=route, step=step, **fields)
    return judge(catalog, ctx, a_call(), {"flight": "TP 9", "totalCost": cost}, Tally())


def asks(approval: Any, **fields: Any) -> Tool:
    return a_tool(requires_approval=approval, **fields)


@pytest.mark.row("Q3", "X03")
def test_shadow_is_forbidden_unless_the_actor_allows_it(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"`book_flight` in `routes.r.tools` that shadows another") as caught:
        over(a_tool(), a_tool(), "forbid")
    assert caught.value.context["actor"] == "desk"
    with pytest.raises(ConfigError, match="shadows another"):
        build_catalog(tools=[a_tool()], actors=[an_actor(own_tools=(a_tool(),))])
    with caplog.at_level(logging.WARNING, "signoff.registry"):
        assert over(a_tool(), a_tool(), "allow").every_tool
        assert caplog.messages == []
        over(a_tool(), a_tool(), "warn")
    assert caplog.messages == ["actor `desk` has a tool `book_flight` in `routes.r.tools` that shadows another"]


def test_same_name_in_parallel_places_is_no_shadow() -> None:
    routes = (Route(name="r", tools=(a_tool(),)), Route(name="q", tools=(a_tool(),)))
    actors = [an_actor(routes=routes), an_actor("till", own_tools=(a_tool(),))]
    catalog = build_catalog(actors=actors)
    assert [tool.activity for tool in catalog.every_tool] == [
        "book_flight@desk.q",
        "book_flight@desk.r",
        "book_flight@till",
    ]


@pytest.mark.row("X03")
def test_shadow_masks_the_arguments_masked_beneath() -> None:
    hides = ApprovalPolicy(show=ShownArguments(secret=("totalCost",)))
    far = asks(hides, input_schema=WIDE, secrets=("pin",))
    for near, masked in ((a_tool(), ("pin", "totalCost")), (ToolUse(tool=a_tool(), loosens=REASON), ())):
        catalog = over(near, far)
        found = some(catalog.tool("book_flight@desk.r"))
        assert found.masked_arguments == masked
    free = a_tool(input_schema={"type": "object", "additionalProperties": {"type": "string"}})
    found = some(over(free, far).tool("book_flight@desk.r"))
    assert found.masked_arguments == ("pin", "totalCost")
    turn = over(asks(True, input_schema=WIDE, secrets=("pin",)), asks(True, input_schema=WIDE))
    assert {tool.activity: tool.masked_arguments for tool in turn.every_tool} == {
        "book_flight": (),
        "book_flight@desk.r": ("pin",),
        "book_flight@desk.r.*": ("pin",),
    }


@pytest.mark.row("X03")
def test_shadow_inherits_the_approval_of_the_tool_beneath() -> None:
    catalog = over(asks(False), asks(True))
    found = ruled(catalog)
    assert (found.kind, found.tool and found.tool.activity) == ("ask", "book_flight@desk.r")
    assert catalog.approvers("book_flight@desk.r", found.verdict) == ("role:approvers",)
    half = over(asks(False), asks(CHEAP))
    assert [ruled(half, cost).kind for cost in (20.0, 60.0)] == ["run", "ask"]
    near = over(asks(True), asks(False))
    assert [ruled(near, route=route).kind for route in ("r", "")] == ["ask", "run"]


@pytest.mark.row("X03")
def test_shadow_with_a_real_reason_may_loosen() -> None:
    catalog = over(ToolUse(tool=asks(False), loosens=REASON), asks(True))
    assert [ruled(catalog, route=route).kind for route in ("r", "")] == ["run", "ask"]
    with pytest.raises(ConfigError, match="no real reason"):
        over(ToolUse(tool=asks(False), loosens="TODO"), asks(True))
    with pytest.raises(ConfigError, match="it shadows nothing"):
        over(ToolUse(tool=a_tool("other"), loosens=REASON), asks(True))


@pytest.mark.row("X03")
def test_specialist_may_shadow_a_generalist_only_with_a_reason() -> None:
    private = a_tool(scope="specialist", justification="One desk alone has this.")
    with pytest.raises(ConfigError, match="shadows a generalist; say why in `loosens`"):
        over(private, a_tool())
    assert ruled(over(ToolUse(tool=private, loosens=REASON), a_tool())).kind == "run"
    assert ruled(over(a_tool(), private)).kind == "run"


@pytest.mark.row("X03")
@table(("effect", "gate"), ("hide", "tag_policy"), ("deny", "tag_policy"), ("require_approval", "approval"))
def test_rules_over_tags_of_the_shadowed_tool_apply(effect: Any, gate: str) -> None:
    rule = GlobalRule(name="money", rule="'money' in tool.tags", effect=effect)
    found = ruled(over(a_tool(), a_tool(tags=("money",)), policies=[rule]))
    assert (found.gate, found.kind) == (gate, "ask" if effect == "require_approval" else "settled")
    loosened = over(ToolUse(tool=a_tool(), loosens=REASON), a_tool(tags=("money",)), policies=[rule])
    assert ruled(loosened).kind == "run"


async def _never(args: dict[str, Any], context: HookContext) -> Permission:
    return Permission.deny("no")


async def _away(context: HookContext) -> bool:
    return False


OFFICE = "Mo-Fr 08:00-18:00 UTC"
GATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"check_permissions": _never}, {}),
    ({"available": _away}, {}),
    ({"hours": (OFFICE, "Sa 08:00-10:00 UTC")}, {"hours": (OFFICE,)}),
    ({"usage_limit": UsageLimit(1, "user", 60.0)}, {}),
]


@pytest.mark.row("X03")
@table(("gate", "fewer"), *GATES)
def test_shadow_must_keep_the_gates_of_the_tool_beneath(gate: dict[str, Any], fewer: dict[str, Any]) -> None:
    (name,) = gate
    with pytest.raises(ConfigError, match=rf"`routes.r.tools` that shadows another, but not with its `{name}`"):
        over(a_tool(), a_tool(**gate))
    assert over(a_tool(**gate), a_tool(**gate)).every_tool
    assert over(a_tool(**(fewer or gate)), a_tool(**gate)).every_tool
    assert over(ToolUse(tool=a_tool(), loosens=REASON), a_tool(**gate)).every_tool
    step = Step(name="s", tools=("book_flight",))
    actor = an_actor(routes=(Route(name="r", tools=(a_tool(**gate),), steps=(step,)),), shadowing="allow")
    with pytest.raises(ConfigError, match=rf"`routes.r.steps.s.tools` .* not with its `{name}`"):
        build_catalog(tools=[a_tool()], actors=[actor])
    catalog = over(a_tool(**gate), a_tool())
    found = some(catalog.tool_view(pinned(route="r", transient=("book_flight",))).tool("book_flight"))
    assert found.activity == "book_flight@desk.r"


def test_shadow_may_not_have_longer_hours() -> None:
    for hours in ((), ("Mo-Su 00:00-24:00 UTC",), (OFFICE, "Su 00:00-24:00 UTC")):
        with pytest.raises(ConfigError, match="not with its `hours`"):
            over(a_tool(hours=hours), a_tool(hours=(OFFICE,)))


def test_incomparable_policies_are_refused_at_build() -> None:
    with pytest.raises(ConfigError, match=r"`book_flight` at `desk.r` that shadows another, but .*`loosens`"):
        over(asks(ApprovalPolicy(approvers=("role:b",))), asks(ApprovalPolicy(approvers=("role:a",))))


def test_reference_over_a_route_tool_keeps_its_policy() -> None:
    step = Step(name="s", tools=("book_flight",))
    actor = an_actor(routes=(Route(name="r", tools=(asks(True),), steps=(step,)),), shadowing="allow")
    catalog = build_catalog(tools=[asks(False)], actors=[actor])
    found = ruled(catalog, step="s")
    assert (found.kind, found.tool and found.tool.activity) == ("ask", "book_flight@desk.r.s")
    assert ruled(catalog, route="").kind == "run"


@pytest.mark.row("F34")
def test_transient_tool_keeps_the_policy_of_the_tool_it_precedes() -> None:
    catalog = over(asks(True), asks(False))
    found = ruled(catalog, transient=("book_flight",))
    assert (found.kind, found.tool and found.tool.activity) == ("ask", "book_flight@desk.r.*")
    private = a_tool(scope="specialist", justification="One desk alone has this.")
    found = ruled(over(asks(True), private), transient=("book_flight",))
    assert (found.kind, found.tool and found.tool.activity) == ("ask", "book_flight@desk.r")


def test_approval_identifies_one_of_several_tools_of_a_name() -> None:
    catalog = over(a_tool(), a_tool())
    near, far = catalog.tool("book_flight@desk.r"), catalog.tool("book_flight")
    assert near is not None
    assert far is not None
    assert near.definition != far.definition == a_tool().definition
    assert catalog.find_definition("book_flight", near.definition) is near
    assert catalog.find_definition("book_flight", "gone") is far
    assert catalog.tools_named("book_flight") == (far, near, catalog.tool("book_flight@desk.r.*"))
    assert catalog.tools_named("other") == ()
    assert catalog.find_definition("other", "") is None


def test_inventory_has_a_row_for_each_shadowed_tool() -> None:
    rows = {row.tool: row for row in inventory(over(asks(False), asks(True)))}
    assert (rows["book_flight@desk.r"].needs, rows["book_flight@desk.r"].actors) == ("asks", ("desk",))
    assert rows["book_flight"].needs == "asks"


RULES = st.sampled_from([None, "true", "args.totalCost < 50.0", "args.totalCost > 10.0"])
POLICIES = st.booleans() | st.builds(ApprovalPolicy, auto_approve_if=RULES, deny_if=RULES, quorum=st.integers(1, 3))
LAYERS = st.lists(st.none() | POLICIES, min_size=4, max_size=4)
ORDER = ("run", "ask", "denied")


def _verdict(found: JudgedCall) -> int:
    return ORDER.index("denied" if found.code == "denied" else found.kind)


def _layered(policies: Sequence[Any]) -> Catalog:
    far, actor, route, step = (() if each is None else (asks(each),) for each in policies)
    routes = (Route(name="r", tools=route, steps=(Step(name="s", tools=step),)),)
    return build_catalog(tools=far, actors=[an_actor(own_tools=actor, routes=routes, shadowing="allow")])


@pytest.mark.row("X03", "Q3")
@settings(max_examples=examples(150), deadline=None)
@given(policies=LAYERS, cost=st.sampled_from([5.0, 20.0, 70.0]))
def test_shadow_never_loosens_approval(policies: list[Any], cost: float) -> None:
    catalog = _layered(policies)
    for count, (route, step) in ((2, ("", "")), (3, ("r", "")), (4, ("r", "s"))):
        alone = [
            build_catalog(tools=[asks(each)], actors=[an_actor()]) for each in policies[:count] if each is not None
        ]
        found = ruled(catalog, cost, route, step)
        if not alone:
            assert found.gate == "resolve"
            continue
        assert _verdict(found) == max(_verdict(ruled(each, cost, "")) for each in alone)
        if found.kind == "ask" and found.tool is not None:
            policy = catalog.policy(found.tool.activity).policy or ApprovalPolicy()
            asking = [each for each in policies[:count] if isinstance(each, ApprovalPolicy)]
            assert policy.quorum == max((each.quorum for each in asking), default=1)


@pytest.mark.row("X04")
@table(
    "own",
    {"own_tools": (a_tool("Book_Flight"),)},
    {"routes": (Route(name="r", steps=(Step(name="s", tools=(a_tool("BOOK_FLIGHT"),)),)),)},
    {"own_tools": (a_tool("look"),), "routes": (Route(name="r", tools=(a_tool("Look"),)),)},
)
def test_own_tool_may_not_differ_only_by_case(own: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="which differ by case only; rename one of them"):
        build_catalog(tools=[a_tool()], actors=[an_actor(**own)])
    build_catalog(tools=[a_tool()], actors=[an_actor(own_tools=(a_tool("look"),)), an_actor("b")])
