import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from rich.console import Console
from tables import table

from signoff.cli.local.tools import inventory_table
from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, TermRule
from signoff.registry.actor import Route, Step
from signoff.registry.approver_coverage import check_approver_coverage
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.inventory import InventoryRow, inventory
from signoff.registry.gates.pipeline import judge
from signoff.registry.program.tool_keywords import BypassRouting

ARGS = {"flight": "TP1", "totalCost": 10}


def catalog_with(rule: str = "", effect: str = "hide", **tool: object) -> Catalog:
    rules = [GlobalRule.model_validate({"name": "house", "rule": rule, "effect": effect})] if rule else []
    return build_catalog(
        tools=[a_tool(tags=("destructive",), **tool)],
        actors=[an_actor(), an_actor("boss", tags=("trusted",))],
        policies=rules,
    )


def row_of(catalog: Catalog) -> InventoryRow:
    (row,) = inventory(catalog)
    return row


@table(
    ("rule", "effect", "needs"),
    ("'destructive' in tool.tags", "hide", "hidden"),
    ("'destructive' in tool.tags", "deny", "denied"),
    ("'destructive' in tool.tags", "require_approval", "asks"),
    ("'harmless' in tool.tags", "hide", "auto"),
    ("'harmless' in tool.tags && ctx.user.tier == 'x'", "deny", "auto"),
    ("actor.name == 'boss'", "hide", "auto, may be hidden"),
    ("'trusted' in actor.tags", "deny", "auto, may be denied"),
    ("actor.name == 'boss'", "require_approval", "maybe asks"),
    ("ctx.user.tier == 'standard'", "hide", "auto, may be hidden"),
    ("ctx.user.tier == 'standard'", "deny", "auto, may be denied"),
    ("'destructive' in tool.tags || ctx.user.tier == 'x'", "hide", "hidden"),
)
def test_inventory_shows_global_rules(rule: str, effect: str, needs: str) -> None:
    row = row_of(catalog_with(rule, effect))
    assert row.needs == needs
    assert row.rules == (() if needs == "auto" else (f"{effect} by `house`: {rule}",))
    assert row.approvers == (("role:approvers",) if "asks" in needs else ())


@pytest.mark.row("B10")
def test_inventory_row_shows_bypass_reason_and_justification() -> None:
    why = BypassRouting(reason="reads the price list only")
    own = {"scope": "specialist", "routing": "bypass", "bypass_routing": why, "justification": "the desk knows tariffs"}
    row = row_of(build_catalog(tools=[a_tool(**own)], actors=[an_actor()]))
    assert (row.bypass_reason, row.justification) == ("reads the price list only", "the desk knows tariffs")
    console = Console(width=200)
    with console.capture() as printed:
        console.print(inventory_table((row,)))
    assert "not routed: reads the price list only" in printed.get()
    assert "of one actor: the desk knows tariffs" in printed.get()


def test_global_rule_never_loosens_a_tool() -> None:
    policy = ApprovalPolicy(deny_if="args.totalCost > 900.0", approvers=("role:finance",))
    row = row_of(catalog_with("actor.name == 'boss'", "require_approval", requires_approval=policy))
    assert (row.needs, row.approvers) == ("asks, may be denied", ("role:finance",))


@table("rule", "'destructive' in tool.tags", "ctx.user.tier == 'standard'", "actor.name == 'boss'")
@table("effect", "hide", "deny", "require_approval")
def test_gate_results_match_the_inventory(rule: str, effect: str) -> None:
    catalog = catalog_with(rule, effect)
    needs = row_of(catalog).needs
    announced = {"not_available": "hidden", "denied": "denied", "ask": "asks", "run": "auto"}
    for actor in ("desk", "boss"):
        for tier in ("standard", "gold"):
            found = judge(catalog, pinned(actor, tier), a_call(), ARGS, Tally())
            word = announced[found.code if found.kind == "settled" else found.kind]
            assert word in needs or (word == "auto" and needs == "maybe asks")


def test_tool_asked_only_by_a_global_rule_needs_approvers() -> None:
    catalog = catalog_with("ctx.user.tier == 'standard'", "require_approval")
    with pytest.raises(ConfigError, match=r"tool `book_flight` asks `role:approvers`.*add one to `people`"):
        check_approver_coverage(catalog, FixedDirectory([]))
    check_approver_coverage(catalog_with(), FixedDirectory([]))


@table(
    ("policy", "rules"),
    (ApprovalPolicy(), ()),
    (ApprovalPolicy(deny_if="args.totalCost > 900.0"), ("deny_if: args.totalCost > 900.0",)),
    (ApprovalPolicy(require_approval_if="args.totalCost > 9.0"), ("require_approval_if: args.totalCost > 9.0",)),
    (ApprovalPolicy(auto_approve_if="args.totalCost < 9.0"), ("auto_approve_if: args.totalCost < 9.0",)),
    (
        ApprovalPolicy(
            terms=(
                TermRule(when="args.totalCost > 500.0", quorum=2, reason="dear"),
                TermRule(when="args.totalCost > 900.0", quorum=3),
            )
        ),
        ("terms: dear if args.totalCost > 500.0", "terms: stricter if args.totalCost > 900.0"),
    ),
)
def test_policy_rules_are_named_by_their_fields(policy: ApprovalPolicy, rules: tuple[str, ...]) -> None:
    assert row_of(catalog_with(requires_approval=policy)).rules == rules


def test_inventory_lists_the_actors_that_may_use_the_tool() -> None:
    booking = Route(name="booking", steps=(Step(name="pay", tools=(a_tool("charge"),)),))
    catalog = build_catalog(
        tools=[a_tool(), a_tool("search")],
        actors=[
            an_actor(),
            an_actor("boss", tools=("search", "sign"), own_tools=(a_tool("sign"),)),
            an_actor("till", routes=(booking,)),
        ],
    )
    assert {row.tool: row.actors for row in inventory(catalog)} == {
        "book_flight": ("desk", "till"),
        "search": ("desk", "boss", "till"),
        "sign@boss": ("boss",),
        "charge@till.booking.pay": ("till",),
    }


async def watch(call: object, context: object) -> str:
    return "deny"


@table(
    ("rules", "effect", "needs"),
    ({}, "hide", "handler decides, may be denied"),
    ({}, "require_approval", "asks, may be denied"),
    ({"auto_approve_if": "true"}, "hide", "maybe asks, may be denied"),
    ({"require_approval_if": "true"}, "hide", "asks, may be denied"),
)
def test_inventory_shows_the_handler(rules: dict[str, str], effect: str, needs: str) -> None:
    policy = ApprovalPolicy(handler="test_inventory:watch", **rules)
    rule = "'destructive' in tool.tags" if effect == "require_approval" else "'harmless' in tool.tags"
    row = row_of(catalog_with(rule, effect, requires_approval=policy))
    assert (row.needs, row.approvers) == (needs, ("role:approvers",))
    assert "handler: test_inventory:watch" in row.rules
