import dataclasses
import json
from typing import Any

import pytest
from registry_kit import a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import GateDecision, Tally, TurnLimits
from signoff.contracts.call import (
    IN_DOUBT_RULE,
    PERMISSION_RULE,
    REQUESTER_RULE,
    REQUIRES_APPROVAL,
    CallCode,
    RuleReference,
)
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.content import Content, Remark
from signoff.contracts.limits import ARGUMENTS_BYTES, MAX_CALLS, MAX_CALLS_PER_TOOL, MAX_IDENTICAL_CALLS
from signoff.contracts.message import CallPart
from signoff.formats.bounds import SEND_IN_PARTS
from signoff.formats.json_schema import SchemaProblem
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import ExternalAgent
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.gates.argument_check import PROBLEMS_SHOWN
from signoff.registry.gates.judged_call import GateName, JudgedCall, denied_decision, settled_decision
from signoff.registry.gates.pipeline import judge, next_tally
from signoff.registry.tool import Tool

GOOD = {"flight": "TP 531", "totalCost": 420}
OPEN = {"type": "object"}


def catalog(*tools: Tool, **fields: Any) -> Catalog:
    actors = fields.pop("actors", (an_actor(),))
    return build_catalog(tools=tools or (a_tool(),), actors=actors, **fields)


def proposed(tool: str = "book_flight", **fields: Any) -> CallPart:
    return CallPart(call="c7.3", tool=tool, args=Content(inline={}), **fields)


def judged(found: Catalog, args: Any = GOOD, tally: Tally | None = None, **fields: Any) -> JudgedCall:
    call = fields.pop("call", proposed())
    decision = judge(found, fields.pop("ctx", pinned()), call, args, tally or Tally(), **fields)
    return in_english(decision)


def in_english(found: JudgedCall) -> JudgedCall:
    return found._replace(words=(found.message,) if found.words else ())


def settled(
    gate: GateName, code: CallCode, message: str, tool: Tool | None = None, call: CallPart | None = None
) -> JudgedCall:
    return settled_decision(call or proposed(), gate, code, message, tool)


def action(args: Any, tool: str = "book_flight") -> str:
    return sha256_hex([tool, args])[:16]


@table(
    ("args", "message"),
    ([], "the arguments must be one JSON object"),
    ("{}", "the arguments must be one JSON object"),
    ({"n": 2**53}, "the arguments hold an integer outside ±(2^53-1); send it as a string or leave it out"),
    ({"a": "x" * (ARGUMENTS_BYTES - 7)}, f"the arguments are larger than 64 KiB; {SEND_IN_PARTS}"),
)
def test_shape_gate_messages_are_exact(args: Any, message: str) -> None:
    assert judged(catalog(), args) == settled("shape", "input_invalid", message)


def test_arguments_exactly_at_the_limit_are_accepted() -> None:
    found = catalog(a_tool(input_schema=OPEN))
    assert judged(found, {"a": "x" * (ARGUMENTS_BYTES - 8)}).kind == "run"
    broken = proposed(malformed="the arguments are not valid JSON")
    assert judged(found, call=broken) == settled("shape", "input_invalid", "the arguments are not valid JSON")


def test_surplus_call_message_is_exact() -> None:
    message = "too many calls in one completion; propose fewer at a time"
    assert judged(catalog(), call=proposed(surplus=True)) == settled("caps", "too_many_calls", message)


@pytest.mark.row("E48")
@table(
    ("limit", "made", "expected"),
    (MAX_CALLS, MAX_CALLS - 1, ""),
    (MAX_CALLS, MAX_CALLS, "1000"),
    (MAX_CALLS + 9, MAX_CALLS, "1000"),
    (2, 1, ""),
    (2, 2, "2"),
    (2, 3, "2"),
)
def test_turn_call_limit_message_is_exact(limit: int, made: int, expected: str) -> None:
    found = catalog(actors=(an_actor(limits=TurnLimits(calls=limit)),))
    gate_decision = judged(found, tally=Tally(calls=made))
    if not expected:
        assert gate_decision.kind == "run"
        return
    message = f"this turn has made its {expected} calls; answer with the results so far"
    assert gate_decision == settled("caps", "too_many_calls", message)


def test_calls_of_an_unknown_actor_are_limited_too() -> None:
    gate_decision = judged(catalog(), ctx=pinned("gone"), tally=Tally(calls=MAX_CALLS))
    assert (gate_decision.gate, gate_decision.code) == ("caps", "too_many_calls")


@table(("made", "runs"), (MAX_CALLS_PER_TOOL - 1, True), (MAX_CALLS_PER_TOOL, False))
def test_tool_call_limit_message_is_exact(made: int, runs: bool) -> None:
    gate_decision = judged(catalog(), tally=Tally(per_tool={"book_flight": made, "search": 99}))
    if runs:
        assert gate_decision.kind == "run"
        return
    message = "`book_flight` was called 25 times in this turn; do without it"
    assert gate_decision == settled("caps", "too_many_calls", message)


@table(
    ("identical", "mark", "runs"),
    (MAX_IDENTICAL_CALLS - 1, action(GOOD), True),
    (MAX_IDENTICAL_CALLS, action(GOOD), False),
    (MAX_IDENTICAL_CALLS + 1, action(GOOD), False),
    (MAX_IDENTICAL_CALLS, action({**GOOD, "totalCost": 1}), True),
    (MAX_IDENTICAL_CALLS, action(GOOD, "search"), True),
)
def test_identical_call_limit_message_is_exact(identical: int, mark: str, runs: bool) -> None:
    gate_decision = judged(catalog(), tally=Tally(recent=("another", *[mark] * identical)))
    if runs:
        assert gate_decision.kind == "run"
        return
    message = f"the same call was made {identical} times among the last {identical + 1} calls; do something else"
    assert gate_decision == settled("caps", "too_many_calls", message)


def test_unknown_tool_message_suggests_the_nearest() -> None:
    near = "Unknown tool: book_fligth; did you mean `book_flight`?"
    close, distant = proposed("book_fligth"), proposed("zzz")
    assert judged(catalog(), call=close) == settled("resolve", "not_available", near, call=close)
    far = "Unknown tool: zzz; use one of the tools you were given"
    assert judged(catalog(), call=distant) == settled("resolve", "not_available", far, call=distant)


def test_unknown_tool_message_for_an_external_agent_names_the_manifest() -> None:
    agent = an_actor(model="", external=ExternalAgent(acts_for=("user:guest",)))
    found = judged(catalog(actors=(agent,)), call=proposed("zzz"))
    assert found.outcome is not None
    assert found.outcome.value.inline == "Unknown tool: zzz; the gateway's manifest declares no such tool"


def test_tool_of_another_actor_reads_as_unknown() -> None:
    found = catalog(a_tool(), a_tool("search"), actors=(an_actor(tools=("search",)),))
    message = "Unknown tool: book_flight; use one of the tools you were given"
    assert judged(found) == settled("allowlist", "not_available", message)


@table(("reason", "expected"), ("money is frozen", "money is frozen"), ("", "rule `no-money` is true"))
def test_denial_by_a_global_rule_has_its_reason(reason: str, expected: str) -> None:
    rule = GlobalRule(name="no-money", rule="tool.name == 'book_flight'", effect="deny", reason=reason)
    tool = a_tool()
    assert judged(catalog(tool, policies=[rule])) == denied_decision(proposed(), "tag_policy", expected, tool)


def test_denial_by_a_policy_has_its_reason() -> None:
    tool = a_tool(requires_approval=ApprovalPolicy(deny_if="args.totalCost > 100.0"))
    gate_decision = judged(catalog(tool))
    why = gate_decision.verdict.why
    denied = denied_decision(proposed(), "approval", why, tool)
    assert gate_decision == denied._replace(verdict=gate_decision.verdict)
    assert gate_decision.verdict.verdict == "deny"


@table(("count", "more"), (1, ""), (PROBLEMS_SHOWN, ""), (PROBLEMS_SHOWN + 2, "; and 2 more"))
def test_invalid_arguments_message_lists_a_few_problems(count: int, more: str) -> None:
    problems = [SchemaProblem(f"f{n}", "must fly") for n in range(count)]
    tool = a_tool(validate_input=lambda args: problems)
    page_text = "; ".join(f"`f{n}` must fly" for n in range(min(count, PROBLEMS_SHOWN)))
    message = f"the arguments of `book_flight` are not valid: {page_text}{more}. Correct them and call it again"
    assert judged(catalog(tool)) == settled("schema", "input_invalid", message, tool=tool)


@table(
    ("check", "expected"),
    (lambda args: [SchemaProblem("", "must be honest")], "must be honest"),
    (lambda args: 1 / 0, "cannot be checked (ZeroDivisionError)"),
)
def test_own_check_message_is_exact(check: Any, expected: str) -> None:
    tool = a_tool(validate_input=check)
    message = f"the arguments of `book_flight` are not valid: {expected}. Correct them and call it again"
    assert judged(catalog(tool)) == settled("schema", "input_invalid", message, tool=tool)


def test_schema_is_checked_before_the_own_check() -> None:
    seen: list[Any] = []

    def check(args: Any) -> list[SchemaProblem]:
        seen.append(args)
        return []

    tool = a_tool(validate_input=check)
    assert judged(catalog(tool), {"flight": 1}).gate == "schema"
    assert seen == []
    assert judged(catalog(tool)).kind == "run"
    assert seen == [GOOD]


def test_dry_run_message_hides_secrets_and_truncates() -> None:
    tool = a_tool(input_schema={**OPEN, "properties": {"pin": {}}}, secrets=("pin",), requires_approval=True)
    args = {"pin": {"a": 1}, "to": "Zoë", "deep": [{"note": "n" * 501}, "m" * 500, 7, None]}
    shown = {
        "pin": "[hidden]",
        "to": "Zoë",
        "deep": [{"note": "n" * 500 + "...[truncated, 501 chars]"}, "m" * 500, 7, None],
    }
    text = f"[dry-run] book_flight would be called with: {json.dumps(shown, ensure_ascii=False)}"
    assert judged(catalog(tool), args, dry_run=True) == settled("dry_run", "ok", text, tool=tool)


def test_run_and_ask_decisions_have_no_message() -> None:
    free, gated = a_tool(), a_tool("gated", requires_approval=True)
    found = catalog(free, gated)
    run, ask = judged(found), judged(found, call=proposed("gated"))
    assert run == JudgedCall(GateDecision(call="c7.3", kind="run"), tool=free, verdict=run.verdict)
    assert ask == JudgedCall(GateDecision(call="c7.3", kind="ask"), tool=gated, verdict=ask.verdict)
    assert (run.verdict.verdict, ask.verdict.verdict) == ("auto", "ask")


@table(("reason", "why"), ("look first", "look first"), ("", "rule `look` is true"))
def test_asking_global_rule_gives_its_reason(reason: str, why: str) -> None:
    rule = GlobalRule(name="look", rule="tool.name != 'x'", effect="require_approval", reason=reason)
    verdict = judged(catalog(policies=[rule])).verdict
    assert (verdict.verdict, verdict.rule, verdict.rule_text, verdict.why) == (
        "ask",
        RuleReference(kind="global", name="look"),
        "tool.name != 'x'",
        why,
    )
    assert verdict.policy_hash == judged(catalog()).verdict.policy_hash
    asked = a_tool(requires_approval=True)
    assert judged(catalog(asked, policies=[rule])).verdict == judged(catalog(asked)).verdict
    denied = a_tool(requires_approval=ApprovalPolicy(deny_if="true"))
    assert judged(catalog(denied, policies=[rule])).code == "denied"


def test_tally_counts_every_call() -> None:
    found, call = catalog(), proposed()
    first = next_tally(Tally(denials=2), call, GOOD, judged(found))
    assert first == Tally(calls=1, per_tool={"book_flight": 1}, recent=(action(GOOD),), denials=2)
    second = next_tally(first, call, GOOD, judged(found))
    assert (second.calls, second.per_tool, second.recent) == (2, {"book_flight": 2}, (action(GOOD),) * 2)
    other = next_tally(second, proposed("search"), GOOD, judged(found))
    assert (other.calls, other.per_tool) == (3, {"book_flight": 2, "search": 1})
    assert other.recent == (action(GOOD), action(GOOD), action(GOOD, "search"))


def test_tally_counts_malformed_calls_by_their_problem() -> None:
    call = proposed(malformed="not JSON")
    gate_decision = judged(catalog(), call=call)
    tally = next_tally(Tally(), call, {}, gate_decision)
    assert tally.recent == (action("not JSON"),)
    again = next_tally(tally, call, {}, gate_decision)
    assert again.recent == (action("not JSON"),) * 2
    unwritable = proposed()
    huge = {"n": 2**60}
    assert next_tally(Tally(), unwritable, huge, judged(catalog(), huge)).recent == (action(""),)


def test_invalid_tool_names_share_one_count() -> None:
    call = proposed("no such name")
    tally = next_tally(Tally(), call, GOOD, judged(catalog(), call=call))
    assert (tally.per_tool, tally.recent) == ({"?": 1}, (action(GOOD, "?"),))
    full = Tally(per_tool={"?": MAX_CALLS_PER_TOOL})
    assert judged(catalog(), call=call, tally=full).gate == "caps"


def test_handler_not_yet_called_asks() -> None:
    policy = ApprovalPolicy(auto_approve_if="args.totalCost < 500.0", handler="test_gate_words:never_called")
    found = catalog(a_tool(requires_approval=policy))
    gate_decision = judged(found)
    assert gate_decision.before_handler is not None
    assert (gate_decision.before_handler.verdict, gate_decision.before_handler.rule) == (
        "auto",
        RuleReference(name="auto_approve_if"),
    )
    rule = RuleReference(kind="handler", handler="test_gate_words:never_called")
    reasons = (*gate_decision.before_handler.reasons, Remark.of("handler"))
    asks = dataclasses.replace(gate_decision.before_handler, verdict="ask", rule=rule, rule_text="", reasons=reasons)
    assert gate_decision == JudgedCall(
        GateDecision(call="c7.3", kind="ask"),
        tool=found.registry.resolve("book_flight"),
        verdict=asks,
        before_handler=gate_decision.before_handler,
    )


def test_handler_is_not_awaited_if_the_rules_deny() -> None:
    policy = ApprovalPolicy(deny_if="args.totalCost > 1.0", handler="test_gate_words:never_called")
    gate_decision = judged(catalog(a_tool(requires_approval=policy)))
    assert (gate_decision.kind, gate_decision.code, gate_decision.before_handler) == ("settled", "denied", None)


async def never_called(call: object, context: object) -> str:
    raise AssertionError("the gates are pure: they ask nobody")


def test_rules_read_the_tags_of_the_actor() -> None:
    rule = GlobalRule(name="r", rule="'intern' in actor.tags || size(actor.tags) == 0", effect="hide")
    actors = (an_actor("desk", tags=("clerk",)), an_actor("till", tags=("intern",)))
    found = catalog(a_tool(), actors=actors, policies=[rule])
    tool = found.tools()[0]
    assert [found.tool_view(pinned(name)).hides(tool) for name in ("desk", "till", "gone")] == [False, True, True]


@table("own", REQUESTER_RULE, PERMISSION_RULE, IN_DOUBT_RULE, REQUIRES_APPROVAL)
def test_global_rule_never_collides_with_a_rule_of_the_gates(own: RuleReference) -> None:
    rule = GlobalRule(name=own.label, rule="true", effect="require_approval")
    verdict = judged(catalog(policies=[rule])).verdict
    assert (verdict.verdict, verdict.rule) == ("ask", RuleReference(kind="global", name=own.label))
    assert verdict.rule != own
    assert verdict.rule.label != own.label
