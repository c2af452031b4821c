from dataclasses import replace
from typing import Any

import pytest
from policy_samples import SCHEMA, TOOL, arguments, compiled, context
from tables import table

from signoff.contracts.call import REQUIRES_APPROVAL, RuleReference
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.policy.answer import EngineAnswer
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import CompiledPolicy, PolicyVerdict, RulesVerdict, compile_policy, compile_rules
from signoff.policy.expression import EVALUATORS
from signoff.policy.facts import ToolFacts
from signoff.policy.second_engine import second_program
from signoff.policy.terms import NO_TERMS, VerdictTerms

ONE, TWO = "cel-expr-python", "cel-python"
ACTOR = {"name": "desk", "tags": ["money"]}
BAD = float("nan")
BY_A = VerdictTerms(approvers=("role:a",), asked_first=("role:a",))
NO_ROUTE = "; `route_to` gave no list of people that both engines agree on, so the named approvers are asked"


def in_english(verdict: PolicyVerdict) -> PolicyVerdict:
    return replace(verdict, reasons=(verdict.why,))


def answers(rule: str, first: str, second: str, notes: tuple[str, str] = ("", "")) -> tuple[EngineAnswer, ...]:
    one: Any = first
    two: Any = second
    return (EngineAnswer(rule, ONE, one, notes[0]), EngineAnswer(rule, TWO, two, notes[1]))


def of(fields: dict[str, Any]) -> CompiledPolicy:
    return compiled(ApprovalPolicy.model_validate(fields))


def split(policy: CompiledPolicy, rule: str, second: str) -> CompiledPolicy:
    other = replace(policy.expressions[rule], second=second_program(second))
    return replace(policy, expressions={**policy.expressions, rule: other})


# Verdicts


@table(
    ("requires", "verdict", "why"),
    (False, "auto", "the tool needs no approval"),
    (True, "ask", "the tool always needs approval"),
)
def test_tool_without_a_policy_always_or_never_asks(requires: bool, verdict: Any, why: str) -> None:
    policy = compiled(requires)
    assert in_english(policy.judge({"x": BAD}, {})) == PolicyVerdict(
        verdict, REQUIRES_APPROVAL, "", (why,), policy.hash, EVALUATORS, ()
    )
    assert (policy.evaluators, policy.findings, policy.expressions) == (EVALUATORS, (), {})
    assert policy.hash == sha256_hex({"requires_approval": requires})
    assert policy.tool == TOOL


def test_policy_without_rules_asks() -> None:
    policy = compiled(approvers=["role:a"])
    assert in_english(policy.judge(arguments(), context())) == PolicyVerdict(
        "ask",
        REQUIRES_APPROVAL,
        "",
        ("no rule of the policy approves this call automatically",),
        policy.hash,
        EVALUATORS,
        (),
        BY_A,
    )


RULES: dict[str, Any] = {
    "deny_if": "args.count > 8",
    "require_approval_if": "args.count > 5",
    "auto_approve_if": "args.count > 1",
}
CLEAR = (*answers("deny_if", "false", "false"), *answers("require_approval_if", "false", "false"))


@table(
    ("count", "verdict", "rule", "why", "engines"),
    (9, "deny", "deny_if", "`deny_if` is true, so the call is denied", answers("deny_if", "true", "true")),
    (
        6,
        "ask",
        "require_approval_if",
        "`require_approval_if` is true, so the call needs approval",
        (*CLEAR[:2], *answers("require_approval_if", "true", "true")),
    ),
    (
        2,
        "auto",
        "auto_approve_if",
        "`auto_approve_if` is true, so the call needs no approval",
        (*CLEAR, *answers("auto_approve_if", "true", "true")),
    ),
    (
        1,
        "ask",
        "auto_approve_if",
        "`auto_approve_if` is false, so the call needs approval",
        (*CLEAR, *answers("auto_approve_if", "false", "false")),
    ),
)
def test_verdict_names_the_deciding_rule(count: int, verdict: Any, rule: str, why: str, engines: Any) -> None:
    policy = compiled(approvers=["role:a"], **RULES)
    asked = NO_TERMS if verdict == "deny" else BY_A
    assert in_english(policy.judge(arguments(count=count), context())) == PolicyVerdict(
        verdict, RuleReference(name=rule), RULES[rule], (why,), policy.hash, EVALUATORS, engines, asked
    )


@table("rule", "deny_if", "require_approval_if")
def test_false_rules_do_not_approve(rule: str) -> None:
    verdict = of({rule: "args.count > 5"}).judge(arguments(), context())
    assert (verdict.verdict, verdict.rule, verdict.rule_text) == ("ask", REQUIRES_APPROVAL, "")
    assert verdict.why == "no rule of the policy approves this call automatically"
    assert verdict.engines == answers(rule, "false", "false")


@table(
    ("first", "second", "reading"),
    ("true", "false", "got different answers from the two engines"),
    ("false", "true", "got different answers from the two engines"),
    ("true", "1", "did not return true or false"),
    ("args.meta.x", "true", "did not return true or false"),
    ("args.meta.x", "args.meta.x", "did not return true or false"),
    ("true", "1 / 0 == 1", "could not be evaluated (modulus or divide by zero)"),
    ("args.meta.x", "1 / 0 == 1", "could not be evaluated (modulus or divide by zero)"),
    ("args.count / 0 == 1", "true", "could not be evaluated (divide by zero)"),
    ("args.meta.y == 1", "true", "could not be evaluated (key not found in map)"),
)
def test_unclear_engine_answers_have_their_own_reason(first: str, second: str, reading: str) -> None:
    for rule, meaning in (("auto_approve_if", "the call needs approval"), ("deny_if", "the call is denied")):
        policy = split(of({rule: first}), rule, second)
        verdict = policy.judge(arguments(meta={"x": "text"}), context())
        assert verdict.why == f"`{rule}` {reading}, so {meaning}"
        assert verdict.verdict == ("ask" if rule == "auto_approve_if" else "deny")


# Unreadable data


class Unreadable(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("hunter2")


@table(
    ("args", "ctx", "problem"),
    ({"x": BAD}, {}, "a number that is not finite"),
    ({}, {"x": 2**60}, "an integer outside ±(2^53-1)"),
    (Unreadable(), {}, "the data cannot be read (RuntimeError)"),
    ({}, {"user": Unreadable()}, "the data cannot be read (RuntimeError)"),
)
def test_unreadable_data_gives_the_safe_verdict_with_its_reason(args: Any, ctx: Any, problem: str) -> None:
    policy = compiled(auto_approve_if="true", approvers=["role:a"], route_to="['role:b']")
    assert in_english(policy.judge(args, ctx)) == PolicyVerdict(
        "ask",
        RuleReference(name="auto_approve_if"),
        "true",
        (
            f"`auto_approve_if` could not be evaluated ({problem}), so the call needs approval"
            "; `route_to` could not be evaluated, so the named approvers are asked",
        ),
        policy.hash,
        EVALUATORS,
        answers("auto_approve_if", "error", "error", (problem, problem)),
        BY_A,
    )


def test_numbers_have_the_type_of_their_schema() -> None:
    text = "args.totalCost / 2.0 == 24.5 && args.count / 2 == 1 && ctx.limit / 2.0 == 2.5"
    policy = compile_policy(
        ApprovalPolicy(auto_approve_if=text),
        tool=TOOL,
        input_schema=SCHEMA,
        context_schema={"limit": {"type": "number"}},
    )
    assert policy.judge(arguments(totalCost=49, count=3), {**context(), "limit": 5}).verdict == "auto"


def test_policy_reads_the_tool_it_was_compiled_for() -> None:
    facts = ToolFacts("book_flight", "travel", "local", ("money",), "set", "plug")
    text = (
        "tool.name == 'book_flight' && tool.scope == 'travel' && tool.routing == 'local' && tool.tags == ['money'] "
        "&& tool.toolset == 'set' && tool.plugin == 'plug'"
    )
    policy = compile_policy(ApprovalPolicy(auto_approve_if=text), tool=facts, input_schema=SCHEMA)
    assert policy.tool == facts
    assert policy.judge(arguments(), context()).verdict == "auto"


# Routes


def test_route_answers_follow_the_rule_that_asked() -> None:
    policy = compiled(approvers=["role:a"], require_approval_if="args.count > 1", route_to="['user:' + args.currency]")
    verdict = policy.judge(arguments(), context())
    assert verdict.terms.approvers == ("user:EUR",)
    assert verdict.why == "`require_approval_if` is true, so the call needs approval"
    notes = ("a list<dyn>", "a ListType")
    assert verdict.engines[:2] == answers("require_approval_if", "true", "true")
    assert [(each.rule, each.kind, each.note) for each in verdict.engines[2:]] == [
        ("route_to", "other", verdict.engines[2].note),
        ("route_to", "other", notes[1]),
    ]


@table(
    ("first", "second", "people"),
    ("['user:a', 'user:b']", "['user:a', 'user:b']", ("user:a", "user:b")),
    ("['user:a', 'user:b']", "['user:b', 'user:a']", None),
    ("['user:a']", "['user:a', 'user:b']", None),
    ("['user:a']", "[]", None),
    ("['user:a']", "'user:a'", None),
    ("['user:a']", "1 / 0", None),
    ("['user:a']", "{'user:a': 1}", None),
    ("args.recipients", "['user:a']", None),
)
def test_route_counts_only_if_both_engines_agree(first: str, second: str, people: Any) -> None:
    policy = split(compiled(approvers=["role:a"], route_to=first), "route_to", second)
    verdict = policy.judge(arguments(), context())
    assert verdict.terms.approvers == (people or ("role:a",))
    base = "no rule of the policy approves this call automatically"
    assert verdict.why == (base if people else base + NO_ROUTE)
    assert [(each.rule, each.engine) for each in verdict.engines] == [("route_to", ONE), ("route_to", TWO)]


def test_route_is_evaluated_unless_the_call_is_denied() -> None:
    """A denied call needs no approvers. An automatic one keeps them for a global rule or a check."""
    passes, denies = ["auto_approve_if"] * 2 + ["route_to"] * 2, ["deny_if"] * 2
    for fields, people, asked in (
        ({"auto_approve_if": "true"}, ("user:a",), passes),
        ({"deny_if": "true"}, (), denies),
    ):
        verdict = of({**fields, "route_to": "['user:a']"}).judge(arguments(), context())
        assert verdict.terms.approvers == people
        assert [each.rule for each in verdict.engines] == asked


# Hashes and findings


def test_policy_hash_covers_the_set_fields() -> None:
    policy = compiled(autoApproveIf="  tool.tags.includes('money') ", quorum=2, timeout="1h", show={"secret": ["note"]})
    content = {
        "auto_approve_if": "tool.tags.includes('money')",
        "quorum": 2,
        "timeout": 3600.0,
        "show": {"secret": ["note"]},
    }
    assert policy.hash == sha256_hex({"requires_approval": content})
    assert compiled(quorum=1).hash == sha256_hex({"requires_approval": {}})


def test_hash_of_global_rules_covers_each_rule() -> None:
    rules = [
        GlobalRule(name="b", rule=" tool.tags.includes('x')", effect="deny", reason="r"),
        GlobalRule(name="a", rule="true", effect="hide"),
    ]
    content = [
        {"name": "a", "rule": "true", "effect": "hide", "reason": ""},
        {"name": "b", "rule": "tool.tags.includes('x')", "effect": "deny", "reason": "r"},
    ]
    assert compile_rules(rules).hash == sha256_hex({"policies": content})
    assert compile_rules([]).hash == sha256_hex({"policies": []})


def test_findings_are_listed_rule_by_rule() -> None:
    policy = compiled(auto_approve_if="args.odd == 1", deny_if="args.meta.a == 1", route_to="args.meta.b")
    assert policy.findings == (
        "`deny_if`: not checked: `args.meta.a`",
        "`auto_approve_if`: not checked: `args.odd`",
        "`route_to`: not checked: the type of the result",
        "`route_to`: not checked: `args.meta.b`",
    )
    rules = compile_rules(
        [
            GlobalRule(name="a", rule="ctx.free.x == 1", effect="deny"),
            GlobalRule(name="b", rule="ctx.free.y == 1", effect="hide"),
        ],
        {"free": {"type": "object"}},
    )
    assert rules.findings == ("`b`: not checked: `ctx.free.y`", "`a`: not checked: `ctx.free.x`")


# Global rules


@table(
    ("expression", "reading"),
    ("1 / (size(actor.tags) - 1) == 1", "could not be evaluated (divide by zero)"),
    ("ctx.free.x", "did not return true or false"),
)
def test_unclear_global_rule_applies_with_its_reason(expression: str, reading: str) -> None:
    rule = GlobalRule(name="night", rule=expression, effect="require_approval", reason="at night")
    rules = compile_rules([rule], {"free": {"type": "object"}})
    found = rules.judge(actor=ACTOR, tool=TOOL, ctx={**context(), "free": {"x": "text"}})
    assert (found.effect, found.rule, found.why) == ("require_approval", rule, f"rule `night` {reading}: at night")
    assert [each.rule for each in found.engines] == ["night", "night"]


def test_global_rule_with_disagreeing_engines_applies() -> None:
    rule = GlobalRule(name="r", rule="ctx.tenant == 'main'", effect="deny")
    rules = compile_rules([rule])
    for second, ctx, kinds in (
        ("false", context(), ("true", "false")),
        ("true", {**context(), "tenant": "x"}, ("false", "true")),
    ):
        split_rules = replace(rules, rules=((rule, replace(rules.rules[0][1], second=second_program(second))),))
        assert split_rules.judge(actor=ACTOR, tool=TOOL, ctx=ctx) == RulesVerdict(
            "deny", rule, "rule `r` got different answers from the two engines", answers("r", *kinds)
        )


def test_global_rule_reads_tool_actor_and_context() -> None:
    text = "actor.name == 'desk' && actor.tags == ['money'] && tool.name == 'book_flight' && ctx.user.name == 'T'"
    rule = GlobalRule(name="r", rule=text, effect="hide")
    found = compile_rules([rule]).judge(actor=ACTOR, tool=TOOL, ctx=context())
    assert found == RulesVerdict("hide", rule, "rule `r` is true", answers("r", "true", "true"))


def test_invalid_context_path_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        compile_rules([], {"cost-centre": {"type": "string"}})
    assert caught.value.message.startswith("`cost-centre` is not a context path; ")
    assert caught.value.context["field"] == "cost-centre"
    assert caught.value.context["value"] == {"type": "string"}


@table(("limit", "effect"), (5, "deny"), (6, "none"))
def test_declared_number_is_a_float_in_a_global_rule(limit: int, effect: str) -> None:
    rule = GlobalRule(name="r", rule="ctx.limit / 2.0 == 2.5", effect="deny")
    rules = compile_rules([rule], context_schema={"limit": {"type": "number"}})
    found = rules.judge(actor=ACTOR, tool=TOOL, ctx={**context(), "limit": limit})
    kind = "true" if effect == "deny" else "false"
    assert (found.effect, found.engines) == (effect, answers("r", kind, kind))


def test_error_of_a_route_names_tool_and_field() -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(route_to="args.count")
    assert caught.value.message == (
        "tool `book_flight`: `route_to`: the result is int, it must be a list of strings (in `args.count`)"
    )
    found = caught.value.context
    assert (found["tool_name"], found["field"], found["value"], found["column"]) == (
        "book_flight",
        "route_to",
        "args.count",
        0,
    )


def test_non_object_schema_leaves_the_card_unchecked() -> None:
    policy = ApprovalPolicy.model_validate({"show": {"secret": ["pin"], "only": ["x"]}})
    assert compile_policy(policy, tool=TOOL, input_schema={"$ref": "other"}).policy == policy
