import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proved_rows import case
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import RuleReference
from signoff.contracts.ids import is_tool_name
from signoff.contracts.limits import MAX_CALLS, MAX_IDENTICAL_CALLS, RECENT_CALLS
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, judge, next_tally
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 531", "totalCost": 420}
FULL = Tally(calls=MAX_CALLS)
HIDE = GlobalRule(name="no-destruction", rule="'destructive' in tool.tags", effect="hide")
DENY = GlobalRule(name="no-money", rule="'money' in tool.tags", effect="deny", reason="money is frozen")
ASK = GlobalRule(name="look-first", rule="'look' in tool.tags", effect="require_approval", reason="new tool")


def catalog(*tools: Tool, **fields: Any) -> Catalog:
    return build_catalog(tools=tools or (a_tool(),), actors=(an_actor(),), **fields)


def ruled(found: Catalog, name: str = "book_flight", args: Any = GOOD, **fields: Any) -> JudgedCall:
    tally = fields.pop("tally", Tally())
    return judge(found, fields.pop("ctx", pinned()), a_call(name, fields.pop("malformed", "")), args, tally, **fields)


def facts(found: JudgedCall) -> tuple[str, str, str]:
    return found.kind, found.gate, found.code


@pytest.mark.row("B67")
def test_automatic_call_runs_and_gated_call_asks() -> None:
    assert facts(ruled(catalog())) == ("run", "approval", "ok")
    asked = ruled(catalog(a_tool(requires_approval=True)))
    assert facts(asked) == ("ask", "approval", "ok")
    assert asked.verdict.verdict == "ask"
    assert asked.tool.name == "book_flight"


@table(
    ("args", "words"),
    ([], "one JSON object"),
    (None, "one JSON object"),
    ({"n": 2**53}, "integer outside"),
    ({"n": float("inf")}, "not finite"),
    ({"n": "\ud800"}, "surrogate"),
    ({"n": [[[]]] * 3000}, "more than"),
    ({"n": "é" * 40_000}, "larger than 64 KiB"),
)
def test_shape_rejects_values_without_a_canonical_form(args: Any, words: str) -> None:
    found = ruled(catalog(), args=args, tally=FULL)
    assert facts(found) == ("settled", "shape", "input_invalid")
    assert words in found.message


@pytest.mark.row("E48")
def test_sixth_identical_call_is_too_many() -> None:
    found, tally = catalog(), Tally()
    for turn in range(MAX_IDENTICAL_CALLS):
        args = dict(reversed(GOOD.items())) if turn % 2 else GOOD
        gate_decision = ruled(found, args=args, tally=tally)
        assert gate_decision.kind == "run"
        tally = next_tally(tally, a_call(), args, gate_decision)
    assert ruled(found, tally=tally).code == "too_many_calls"
    for cost in range(1, RECENT_CALLS - MAX_IDENTICAL_CALLS + 1):
        other = {**GOOD, "totalCost": cost}
        tally = next_tally(tally, a_call(), other, ruled(found, args=other, tally=tally))
        assert ruled(found, tally=tally).code == "too_many_calls"
    other = {**GOOD, "totalCost": RECENT_CALLS}
    tally = next_tally(tally, a_call(), other, ruled(found, args=other, tally=tally))
    assert ruled(found, tally=tally).kind == "run", "the first of the five is no longer among the last twenty"
    assert tally.calls == RECENT_CALLS + 1 == tally.per_tool["book_flight"]


UNKNOWN = [
    case("X04", "Book_Flight", name="another case"),
    case("X05", "book_fligth", name="a slip"),
    case("E11", "wire_money", name="nothing like it"),
    *("", "respond", "x" * 1000, "`\n"),
]


def test_rule_over_time_reads_the_instant_of_judgement() -> None:
    weekend = GlobalRule(
        name="weekend", rule="ctx.now.weekday in ['Sa', 'Su']", effect="deny", reason="it is the weekend"
    )
    found = catalog(policies=(weekend,))
    saturday, monday = (datetime(2026, 11, day, 12, tzinfo=UTC) for day in (28, 30))
    assert facts(ruled(found, known=GateFacts(at=saturday)))[2] == "denied"
    assert ruled(found, known=GateFacts(at=monday)).kind == "run"


def test_calls_that_differ_only_in_remarks_are_identical() -> None:
    found, tally = catalog(a_tool(remarks=("flight",))), Tally()
    for turn in range(MAX_IDENTICAL_CALLS):
        args = {**GOOD, "flight": f"words {turn}"}
        decision = ruled(found, args=args, tally=tally)
        assert decision.kind == "run"
        tally = next_tally(tally, a_call(), args, decision)
    stopped = ruled(found, args={**GOOD, "flight": "other words"}, tally=tally)
    assert stopped.code == "too_many_calls"
    again = next_tally(tally, a_call(), {**GOOD, "flight": "last words"}, stopped)
    assert again.recent[-1] == again.recent[-2]


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_name_is_soft_and_never_executed(name: str) -> None:
    found = ruled(catalog(), name)
    assert facts(found) == ("settled", "resolve", "not_available")
    assert found.tool is None
    assert len(found.message) < 250
    assert found.message.startswith(f"Unknown tool: {name}" if is_tool_name(name) else "Unknown tool: `")
    assert ("did you mean `book_flight`?" in found.message) == (name.lower().startswith("book"))


@pytest.mark.row("V01")
def test_hidden_tool_reads_like_an_unknown_one() -> None:
    found = catalog(a_tool(tags=("destructive",)), a_tool("search"), policies=[HIDE])
    hidden, unknown = ruled(found), ruled(found, "book_flightt")
    assert facts(hidden) == ("settled", "tag_policy", "not_available")
    assert hidden.message.replace("book_flight", "X") == unknown.message.replace("book_flightt", "X")
    assert [offer.name for offer in found.offered_tools("desk", pinned())] == ["search", "respond"]


@pytest.mark.row("V01")
def test_failing_hide_rule_hides_the_tool() -> None:
    rule = GlobalRule(name="r", rule="ctx.project == 'x'", effect="hide")
    found = catalog(policies=[rule], context={"project": {"type": "string"}})
    assert ruled(found).code == "not_available"
    assert ruled(found, ctx=pinned(extra={"project": "y"})).kind == "run"


@pytest.mark.row("B45", "N04")
@table(("tools", "kind"), (None, "run"), ((), "settled"), (("search",), "settled"))
def test_actor_list_is_the_boundary(tools: Any, kind: str) -> None:
    found = build_catalog(tools=[a_tool(), a_tool("search")], actors=[an_actor(tools=tools)])
    gate_decision = ruled(found)
    assert gate_decision.kind == kind
    assert kind == "run" or facts(gate_decision) == ("settled", "allowlist", "not_available")


def test_actor_missing_from_the_catalog_sees_nothing() -> None:
    assert facts(ruled(catalog(), ctx=pinned("gone"))) == ("settled", "allowlist", "not_available")


@pytest.mark.row("B05", "N07")
@table("approval", False, True, ApprovalPolicy(deny_if="args.totalCost > 0.0"))
def test_arguments_are_validated_before_any_policy(approval: Any) -> None:
    found = ruled(catalog(a_tool(requires_approval=approval)), args={"flight": "TP", "totalCost": "hunter2"})
    assert facts(found) == ("settled", "schema", "input_invalid")
    assert "`totalCost` must be of type number" in found.message
    assert "hunter2" not in found.message
    assert found.verdict is None


@pytest.mark.row("E17", "N06")
def test_dry_run_runs_nothing_and_asks_no_approver() -> None:
    schema = {"type": "object", "properties": {"note": {"type": "string"}, "pin": {"type": "string"}}}
    tool = a_tool(input_schema=schema, secrets=("pin",), requires_approval=True)
    found = ruled(catalog(tool), args={"note": "n" * 501, "pin": "1234"}, dry_run=True)
    assert facts(found) == ("settled", "dry_run", "ok")
    expected = {"note": "n" * 500 + "...[truncated, 501 chars]", "pin": "[hidden]"}
    assert found.message == f"[dry-run] book_flight would be called with: {json.dumps(expected)}"
    assert ruled(catalog(tool), args={"pin": 1}, dry_run=True).gate == "schema"


def test_dry_run_message_has_a_maximum_length() -> None:
    schema = {"type": "object", "properties": {"notes": {"type": "array", "items": {"type": "object"}}}}
    tool = a_tool(input_schema=schema)
    start = "[dry-run] book_flight would be called with: "
    whole = {"notes": [{"n": "ü" * 500}, {"n": "ü" * 500}, {"n": "ü" * 456}]}
    text = json.dumps(whole, ensure_ascii=False)
    assert len(text) == 1_500
    assert ruled(catalog(tool), args=whole, dry_run=True).message == start + text
    more = {"notes": [*whole["notes"][:2], {"n": "ü" * 457}]}
    text = json.dumps(more, ensure_ascii=False)
    assert ruled(catalog(tool), args=more, dry_run=True).message == f"{start}{text[:1_500]}...[truncated, 1501 chars]"


@pytest.mark.row("B69", "B70")
@table(("tier", "cost", "kind"), ("trusted", 49, "run"), ("trusted", 50, "ask"), ("standard", 49, "ask"))
def test_policy_sees_arguments_and_pinned_user(tier: str, cost: float, kind: str) -> None:
    policy = ApprovalPolicy(auto_approve_if="args.totalCost < 50 && ctx.user.tier == 'trusted'")
    found = ruled(
        catalog(a_tool(requires_approval=policy)), args={"flight": "x", "totalCost": cost}, ctx=pinned(tier=tier)
    )
    assert found.kind == kind
    assert found.verdict.rule == RuleReference(name="auto_approve_if")


ORDER = ["shape", "caps", "resolve", "tag_policy", "allowlist", "schema", "dry_run", "approval"]


def test_gates_decide_in_their_fixed_order() -> None:
    found = build_catalog(
        tools=[a_tool(tags=("money",)), a_tool("quiet"), a_tool("search", requires_approval=True)],
        actors=[an_actor(tools=("book_flight", "search"))],
        policies=[DENY],
    )
    steps: list[tuple[str, Any, Tally, bool]] = [
        ("nothing", [], FULL, True),
        ("nothing", {}, FULL, True),
        ("nothing", {}, Tally(), True),
        ("book_flight", {}, Tally(), True),
        ("quiet", {}, Tally(), True),
        ("search", {}, Tally(), True),
        ("search", GOOD, Tally(), True),
        ("search", GOOD, Tally(), False),
    ]
    assert [ruled(found, name, args, tally=tally, dry_run=dry).gate for name, args, tally, dry in steps] == ORDER


RULES = {"destructive": HIDE, "money": DENY, "look": ASK}
TAGS = st.lists(st.sampled_from(sorted(RULES)), unique=True, max_size=2).map(tuple)
LISTS = st.none() | st.lists(st.sampled_from("abc"), unique=True).map(tuple)


@pytest.mark.row("N02", "E29")
@settings(max_examples=60, deadline=None)
@given(
    tags=st.tuples(TAGS, TAGS, TAGS),
    gated=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    listed=LISTS,
    rules=st.sets(st.sampled_from(sorted(RULES))),
    name=st.sampled_from(["a", "b", "c", "A", "respond", "d"]),
    args=st.sampled_from([GOOD, {}, [], {"flight": 1}]),
    dry=st.booleans(),
)
def test_unadvertised_tool_never_passes(
    tags: Any, gated: Any, listed: Any, rules: set[str], name: str, args: Any, dry: bool
) -> None:
    tools = [a_tool(each, tags=tags[i], requires_approval=gated[i]) for i, each in enumerate("abc")]
    policies = [RULES[rule] for rule in sorted(rules)]
    found = build_catalog(tools=tools, actors=[an_actor(tools=listed)], policies=policies)
    offered = {offer.name for offer in found.offered_tools("desk", pinned())}
    gate_decision = ruled(found, name, args, dry_run=dry)
    assert gate_decision == ruled(found, name, args, dry_run=dry)
    if name not in offered or name == "respond":
        assert gate_decision.kind == "settled"
        assert gate_decision.code in ("not_available", "input_invalid", "denied")
    if gate_decision.kind == "run":
        tool = found.registry.resolve(name)
        assert tool.requires_approval is False
        assert not rules & set(tool.tags)
    assert bool(gate_decision.message) == (gate_decision.kind == "settled")
