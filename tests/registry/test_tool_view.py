from datetime import UTC, datetime
from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned

from signoff.contracts.activity_messages import Tally
from signoff.contracts.call import CallContext
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import CompiledPolicy, CompiledRules, compile_policy
from signoff.policy.filter_expression import CompiledFilter
from signoff.registry.actor import Route, Step
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.scopes.position import Position

SCHEMA = {"type": "object", "properties": {"amount": {}}, "required": ["amount"]}


def catalog(rule: str = "'never' in tool.tags") -> Catalog:
    policy = ApprovalPolicy(auto_approve_if="args.amount == 1.0 && ctx.user.tier == 'standard'")
    return build_catalog(
        tools=[a_tool("pay", input_schema=SCHEMA, requires_approval=policy), a_tool("wire")],
        actors=[an_actor("desk"), an_actor("till")],
        policies=[GlobalRule(name="some", rule=rule, effect="hide")],
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry per evaluation of the global rules or of a tool's policy."""
    entries: list[str] = []
    rules, policy = CompiledRules.judge, CompiledPolicy.judge

    def of_rules(self: CompiledRules, **facts: Any) -> Any:
        entries.append(f"{facts['actor']['name']}: {facts['tool'].name}")
        return rules(self, **facts)

    def of_policy(self: CompiledPolicy, args: Any, ctx: Any, actor: Any = None) -> Any:
        entries.append(f"{args}")
        return policy(self, args, ctx, actor)

    monkeypatch.setattr(CompiledRules, "judge", of_rules)
    monkeypatch.setattr(CompiledPolicy, "judge", of_policy)
    return entries


def test_rules_without_context_are_evaluated_once_for_all_turns(asked: list[str]) -> None:
    known = catalog()
    for turn in ("t1", "t2"):
        assert [tool.name for tool in known.tool_view(pinned(turn=turn)).visible()] == ["pay", "wire"]
    assert asked == ["desk: pay", "desk: wire"]
    known.tool_view(pinned("till")).visible()
    assert asked[2:] == ["till: pay", "till: wire"]


def test_rules_over_the_context_are_evaluated_per_context(asked: list[str]) -> None:
    known = catalog("tool.name == 'wire' && ctx.user.tier == 'standard'")
    for _ in range(2):
        assert [tool.name for tool in known.tool_view(pinned(tier="standard")).visible()] == ["pay"]
        assert [tool.name for tool in known.tool_view(pinned(tier="trusted")).visible()] == ["pay", "wire"]
    assert len(asked) == 4


def test_invalid_context_never_gets_a_cached_answer(asked: list[str]) -> None:
    known = catalog()
    assert known.tool_view(pinned()).visible()
    assert known.tool_view(pinned(channel="\ud800")).visible() == ()
    assert known.tool_view(pinned(turn="next")).visible()


def test_unknown_actor_leaves_no_cache_entry(asked: list[str]) -> None:
    known = catalog()
    tool = known.tools()[0]
    for _ in range(2):
        known.tool_view(pinned("nobody", turn="a")).rules_verdict(tool)
        known.tool_view(pinned("nobody", turn="b")).rules_verdict(tool)
    assert asked == ["nobody: pay"] * 2


def test_verdict_is_cached_for_equal_arguments_and_context(asked: list[str]) -> None:
    known = catalog()
    policy = known.policy("pay")
    view, other = known.tool_view(pinned()), known.tool_view(pinned(tier="trusted"))
    given: list[Any] = [1, 1.0, True, "1", 2]
    verdicts = [view.verdict(policy, {"amount": amount}).verdict for amount in given]
    assert asked == [f"{{'amount': {amount!r}}}" for amount in given]
    assert verdicts == [policy.judge({"amount": amount}, view.ctx).verdict for amount in given]
    asked.clear()
    assert [view.verdict(policy, {"amount": amount}).verdict for amount in given] == verdicts
    assert asked == []
    assert other.verdict(policy, {"amount": 1}).verdict == "ask"
    assert len(asked) == 1


def test_policy_is_evaluated_for_the_calling_actor() -> None:
    policy = ApprovalPolicy(auto_approve_if="actor.name == 'desk'")
    tool = a_tool("pay", input_schema=SCHEMA, requires_approval=policy)
    known = build_catalog(tools=[tool], actors=[an_actor("desk"), an_actor("till")])
    views = [known.tool_view(pinned(actor)) for actor in ("desk", "till")]
    assert [view.verdict(known.policy("pay"), {"amount": 1}).verdict for view in views] == ["auto", "ask"]


def test_verdict_cache_holds_a_hundred_entries_per_context(asked: list[str]) -> None:
    known = catalog()
    policy, view = known.policy("pay"), known.tool_view(pinned())
    for amount in range(100):
        view.verdict(policy, {"amount": amount})
    view.verdict(policy, {"amount": 0})
    assert len(asked) == 100
    view.verdict(policy, {"amount": 100})
    view.verdict(policy, {"amount": 0})
    assert len(asked) == 102


def test_verdict_of_another_policy_with_the_same_name_is_not_reused() -> None:
    found = catalog()
    view = found.tool_view(pinned(actor="desk"))
    loose, strict = (compile_policy(policy, tool=a_tool("pay").facts, input_schema=SCHEMA) for policy in (False, True))
    assert [view.verdict(each, {"amount": 1.0}).verdict for each in (loose, strict, loose)] == ["auto", "ask", "auto"]


def test_rules_over_time_are_evaluated_per_instant_and_others_once(asked: list[str]) -> None:
    day, night = (datetime(2026, 3, 2, hour, tzinfo=UTC) for hour in (9, 21))
    policy = ApprovalPolicy(auto_approve_if="ctx.now.hour < 18")
    denied_at_night = GlobalRule(name="night", rule="ctx.now.hour >= 18", effect="deny")
    tool = a_tool("pay", input_schema=SCHEMA, requires_approval=policy)
    known = build_catalog(tools=[tool], actors=[an_actor()], policies=[denied_at_night])
    views = [known.tool_view_at(pinned(), at) for at in (day, night, day)]
    verdicts = [view.verdict(known.policy("pay"), {"amount": 1}).verdict for view in views]
    assert verdicts == ["auto", "ask", "auto"]
    assert [view.rules_verdict(known.tools()[0]).effect for view in views] == ["none", "deny", "none"]
    asked.clear()
    timeless = catalog()
    for at in (day, night):
        view = timeless.tool_view_at(pinned(), at)
        view.verdict(timeless.policy("pay"), {"amount": 1})
        view.rules_verdict(timeless.tools()[0])
    assert asked == ["{'amount': 1}", "desk: pay"]


def test_view_without_unavailable_tools_is_the_same_object() -> None:
    view = catalog().tool_view(pinned())
    assert view.without(frozenset()) is view
    away = view.without(frozenset({"wire"}))
    assert [tool.name for tool in away.visible()] == ["pay"]
    assert away.without(frozenset({"wire"})) is away
    assert away.rule_verdicts is view.rule_verdicts
    assert away.verdicts is view.verdicts
    assert away.filtered is view.filtered
    assert away.passing is view.passing


@pytest.fixture
def filtered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry per evaluation of a `tool_filter`, and "" for each list of visible tools."""
    entries: list[str] = []
    problem, names = CompiledFilter.problem, Position.names

    def of_filter(self: CompiledFilter, **facts: Any) -> str:
        entries.append(facts["tool"].name)
        return problem(self, **facts)

    def of_position(self: Position, *given: Any) -> Any:
        entries.append("")
        return names(self, *given)

    monkeypatch.setattr(CompiledFilter, "problem", of_filter)
    monkeypatch.setattr(Position, "names", of_position)
    return entries


def filtering() -> Catalog:
    step = Step(name="s", tool_filter="tool.name != 'pay' || ctx.user.tier == 'trusted'")
    route = Route(name="r", tool_filter="tool.name != 'wire'", steps=(step,))
    return build_catalog(tools=[a_tool(name) for name in ("note", "pay", "wire")], actors=[an_actor(routes=(route,))])


def test_unknown_names_list_the_tools_once_per_context(filtered: list[str]) -> None:
    known = filtering()
    for number in range(10):
        away = GateFacts(unavailable=frozenset({"note"} if number % 2 else ()))
        found = judge(known, pinned(route="r"), a_call(f"not{number}"), {}, Tally(), known=away)
        assert (found.gate, found.code) == ("resolve", "not_available")
        assert ("did you mean `note`" in found.message) == (number % 2 == 0)
    assert judge(known, pinned(route="r"), a_call("wire"), {}, Tally()).gate == "layer"
    assert sorted(filtered) == ["", "note", "pay", "wire"]


def test_filter_result_is_cached_per_context_and_place() -> None:
    known = filtering()

    def seen(ctx: CallContext) -> list[str]:
        return [tool.name for tool in known.tool_view(ctx).visible()]

    for _ in range(2):
        assert seen(pinned(route="r")) == ["note", "pay"]
        assert seen(pinned(route="r", step="s")) == ["note"]
        assert seen(pinned(route="r", step="s", tier="trusted")) == ["note", "pay"]
        assert seen(pinned()) == ["note", "pay", "wire"]
