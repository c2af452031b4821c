import threading
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_samples import SCHEMA, TOOL, arguments, compiled, context
from tables import table

from signoff.contracts.call import REQUIRES_APPROVAL, RuleReference
from signoff.contracts.canonical_json import sha256_hex
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import CallArguments, CompiledPolicy, CompiledRules, compile_policy, compile_rules
from signoff.policy.facts import ToolFacts
from signoff.policy.second_engine import second_program

CHEAP = "args.totalCost < 50 && ctx.user.tier == 'trusted'"
FLAT = {"type": "object", "properties": {name: {} for name in "abc"}, "required": list("abc")}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.row("B71")
def test_false_never_asks_and_true_always_asks() -> None:
    never, always = compiled(False), compiled(True)
    assert (never.judge({}, {}).verdict, never.needs_person) == ("auto", "never")
    assert (always.judge({}, {}).verdict, always.needs_person) == ("ask", "always")
    assert never.judge({}, {}).rule == always.judge({}, {}).rule == REQUIRES_APPROVAL
    assert never.policy is None
    assert never.hash != always.hash


def test_needs_person_reports_whether_a_call_can_pass_alone() -> None:
    assert compiled(auto_approve_if="true").needs_person == "maybe"
    assert compiled(deny_if="args.flag").needs_person == "always"
    assert compiled(require_approval_if="args.flag").needs_person == "always"


@pytest.mark.row("Q5", "B69")
def test_verdict_explains_itself() -> None:
    policy = compiled(auto_approve_if=CHEAP)
    verdict = policy.judge(arguments(), context())
    assert (verdict.verdict, verdict.rule, verdict.rule_text) == ("auto", RuleReference(name="auto_approve_if"), CHEAP)
    assert verdict.why == "`auto_approve_if` is true, so the call needs no approval"
    assert verdict.policy_hash == policy.hash
    assert len(policy.hash) == 64
    assert [(each.engine, each.kind) for each in verdict.engines] == [
        ("cel-expr-python", "true"),
        ("cel-python", "true"),
    ]
    assert "cel-expr-python 0." in verdict.evaluators
    assert "cel-python 0." in verdict.evaluators


@pytest.mark.row("B70", "N29")
def test_policy_reads_only_the_pinned_context() -> None:
    policy = compiled(auto_approve_if=CHEAP)
    assert policy.judge(arguments(), context(tier="trusted")).verdict == "auto"
    assert policy.judge(arguments(), context(tier="guest")).verdict == "ask"
    for text in ("now < 5", "ctx.now < 5", "ctx.approver == 'x'", "actor.model == 'x'", "ctx.user.email == 'x'"):
        with pytest.raises(ConfigError):
            compiled(auto_approve_if=text)


@pytest.mark.row("N29")
def test_custom_context_fields_are_declared_and_checked() -> None:
    extra = {"user.costCentre": {"type": "string"}, "project.budget": {"type": "number"}}
    policy = compile_policy(
        ApprovalPolicy(auto_approve_if="ctx.user.costCentre == 'c1' && ctx.project.budget / 2.0 > 4.0"),
        tool=TOOL,
        input_schema=SCHEMA,
        context_schema=extra,
    )
    rich = context(costCentre="c1") | {"project": {"budget": 10}}
    assert policy.judge(arguments(), rich).verdict == "auto"
    assert policy.judge(arguments(), context(costCentre="c1")).verdict == "ask"
    with pytest.raises(ConfigError, match="costCentre"):
        compile_policy(
            ApprovalPolicy(auto_approve_if="ctx.user.costCenter == 'x'"),
            tool=TOOL,
            input_schema=SCHEMA,
            context_schema=extra,
        )
    for path in ("user.tier", "user", "tenant.x", "a-b", "a..b"):
        with pytest.raises(ConfigError, match="context"):
            compile_policy(False, tool=TOOL, input_schema=SCHEMA, context_schema={path: {"type": "string"}})


@pytest.mark.row("V02")
@table(
    ("text", "says"),
    ("args.totalCots < 50", "did you mean `args.totalCost`"),
    ("ctx.user.teir == 'x'", "did you mean `ctx.user.tier`"),
    ("argz.totalCost < 50", "did you mean `args.totalCost`"),
    ("totalCost < 50", "did you mean `args.totalCost`"),
    ("args.legs.exists(leg, leg.citty == 'x')", "did you mean `city`"),
    ("args.legs[0].citty == 'x'", "did you mean `args.legs[0].city`"),
    ("args.recipients.exsts(r, r == 'x')", "did you mean `exists`"),
    ("!has(args.blocked)", "no field `args.blocked`"),
    ("args.count < 49.5", "write `double(args.count)`"),
    ("args.count < '5'", "`<` does not work on (int, string)"),
    ("args.flag < 50", "`<` does not work on (bool, int)"),
    ("'A' in args.currency", "use `contains`"),
    ("size(args.currency, 1) == 1", "`size` does not take these arguments"),
    ("args.currency", "the result is string, it must be true or false"),
    ("args.optional == 'x'", "ask `has(args.optional) && ...` first"),
    ("args.legs.all(leg, leg.nights < 3)", "`args.legs[0].nights` is optional"),
    ("args.recipients[size(args.optional)] == 'x'", "`args.optional` is optional"),
    ("args.in == 'x'", "CEL cannot spell the argument `in`"),
    ("args.my-field == 'x'", "CEL cannot spell the argument `my-field`"),
    ("args.`in` == 'x'", "CEL cannot spell the argument `in`"),
    ("google.protobuf.Struct{} == args.meta", "cannot build messages"),
    ("args.count <", "syntax error"),
)
def test_invalid_policy_is_refused_with_its_remedy(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(auto_approve_if=text)
    error = caught.value
    assert says in error.message
    assert error.message.startswith("tool `book_flight`: `auto_approve_if`")
    assert text in error.message
    assert error.context["tool_name"] == "book_flight"
    assert error.context["field"] == "auto_approve_if"
    assert error.context["value"] == text


def test_error_column_counts_through_several_lines() -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(deny_if="args.flag ||\nargs.totalCots < 50")
    assert caught.value.context["column"] == len("args.flag ||\n") + len("args") + 1


def test_schema_generated_by_pydantic_is_understood() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "who": {"allOf": [{"$ref": "#/$defs/Who"}]},
            "maybe": {"anyOf": [{"$ref": "#/$defs/Who"}, {"type": "null"}]},
            "kind": {"enum": ["a", "b"]},
            "loop": {"$ref": "#/$defs/Loop"},
        },
        "required": ["who", "maybe", "kind", "loop"],
        "$defs": {
            "Who": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            "Loop": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Loop"}}, "required": ["next"]},
        },
    }
    ok = "args.who.name == 'x' && (args.maybe == null || args.maybe.name == 'x') && args.kind == 'a'"
    policy = compile_policy(ApprovalPolicy(auto_approve_if=ok), tool=TOOL, input_schema=schema)
    assert policy.findings == ()
    assert policy.judge({"who": {"name": "x"}, "maybe": None, "kind": "a"}, context()).verdict == "auto"
    for text in ("args.who.nme == 'x'", "args.maybe.nme == 'x'", "args.kind == 1"):
        with pytest.raises(ConfigError):
            compile_policy(ApprovalPolicy(auto_approve_if=text), tool=TOOL, input_schema=schema)


def test_policy_of_a_tool_without_arguments_may_not_name_any() -> None:
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    policy = ApprovalPolicy(auto_approve_if="args.x == 1")
    with pytest.raises(ConfigError, match=r"no field `args.x`; declared are none"):
        compile_policy(policy, tool=TOOL, input_schema=closed)


@table(
    ("text", "args"),
    ("args.recipients", {"recipients": ["user:" + "x" * 49]}),
    ("args.recipients", {"recipients": ["user:a\n"]}),
    ("[args.meta.who]", {"meta": {}}),
    ("[args.meta.who]", {"meta": {"who": 7}}),
    ("args.odd", {"odd": "user:ana"}),
    ("['user:' + args.recipients[7]]", {}),
)
def test_invalid_route_falls_back_to_the_named_approvers(text: str, args: dict[str, Any]) -> None:
    verdict = compiled(approvers=["role:finance"], route_to=text).judge(arguments(**args), context())
    assert (verdict.verdict, verdict.terms.approvers) == ("ask", ("role:finance",))
    assert "route_to" in verdict.why


def test_route_must_be_a_list_of_strings() -> None:
    for text in ("args.flag", "args.legs", "'role:x'", "[1]"):
        with pytest.raises(ConfigError, match="it must be a list of strings"):
            compiled(route_to=text)


def test_named_approvers_apply_and_level_admin_adds_its_role() -> None:
    assert compiled(approvers=["user:ana"], level="admin").judge({}, {}).terms.approvers == ("user:ana",)
    assert compiled(level="admin").judge({}, {}).terms.approvers == ("role:admin",)
    assert compiled(level="user").judge({}, {}).terms.approvers == ()
    assert compiled(auto_approve_if="true", level="admin").judge({}, {}).terms.approvers == ("role:admin",)


@table(
    ("args", "why"),
    ({"x": float("nan")}, "a number that is not finite"),
    ({"x": 2**53}, "an integer outside"),
    ({"x": "\ud800"}, "a lone surrogate"),
    ({"x": [0] * 2_001}, "more than 2000 values"),
    ({"x": {1, 2}}, "not a JSON type"),
    ({1: 2}, "a name that is not a string"),
)
def test_invalid_data_asks_and_denies(args: dict[Any, Any], why: str) -> None:
    asked = compiled(auto_approve_if="true").judge(args, context())
    assert asked.verdict == "ask"
    assert why in asked.why
    assert compiled(auto_approve_if="true", deny_if="false").judge(args, context()).verdict == "deny"
    assert compiled(auto_approve_if="true").judge({}, {"user": args}).verdict == "ask"


def disagreeing(rule: str, first: str, second: str, **fields: Any) -> CompiledPolicy:
    policy = compiled(ApprovalPolicy.model_validate({rule: first, **fields}))
    other = replace(policy.expressions[rule], second=second_program(second))
    return replace(policy, expressions={**policy.expressions, rule: other})


@pytest.mark.row("N27")
@table("pair", ("true", "false"), ("false", "true"), ("true", "1"), ("true", "1 / 0 == 1"))
def test_disagreeing_engines_give_the_safe_verdict(pair: tuple[str, str]) -> None:
    data = (arguments(), context())
    assert disagreeing("auto_approve_if", *pair).judge(*data).verdict == "ask"
    assert disagreeing("deny_if", *pair, auto_approve_if="true").judge(*data).verdict == "deny"
    assert disagreeing("require_approval_if", *pair, auto_approve_if="true").judge(*data).verdict == "ask"
    for effect in ("hide", "deny", "require_approval"):
        rules = rules_of((effect, pair[0]))
        rule, expression = rules.rules[0]
        split = replace(rules, rules=((rule, replace(expression, second=second_program(pair[1]))),))
        assert split.judge(actor={}, tool=TOOL, ctx=context()).effect == effect


@given(json_values, json_values)
@settings(max_examples=150, deadline=None)
def test_judging_never_raises_and_auto_needs_exactly_true(cost: Any, tier: Any) -> None:
    args: Any = {"totalCost": cost}
    verdict = compiled_cheap.judge(args, context(tier=tier))
    number = isinstance(cost, int | float) and not isinstance(cost, bool) and abs(cost) < 2**53
    assert (verdict.verdict == "auto") == (number and cost < 50 and tier == "trusted")


@given(json_values, json_values)
@settings(max_examples=60, deadline=None)
def test_judging_accepts_data_of_any_shape(args: Any, ctx: Any) -> None:
    assert compiled_cheap.judge(args, ctx).verdict == "ask"
    rules = compiled_rule.judge(actor=args, tool=TOOL, ctx=ctx)
    assert rules.effect in ("hide", "none")


def _expected(text: str, data: dict[str, Any]) -> bool:
    left, operator, right = text.split(" ")
    one = data[left.removeprefix("args.")]
    two: Any = data[right.removeprefix("args.")] if right.startswith("args.") else _LITERALS[right]
    number = {int, float}
    comparable = (type(one) in number and type(two) in number) or type(one) is type(two)
    match operator:
        case "==":
            return comparable and bool(one == two)
        case "!=":
            return not (comparable and one == two)
    if not comparable or one is None or isinstance(one, list):
        return False
    return bool({"<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}[operator])


_LITERALS: dict[str, Any] = {"1": 1, "2.5": 2.5, "'a'": "a", "true": True, "null": None, "-1": -1}
scalars = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([2.5, 1.0, 0.0]) | st.sampled_from(["a", "b"])
)


@given(
    st.sampled_from(["args.a", "args.b"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    st.sampled_from([*_LITERALS, "args.b", "args.c"]),
    st.fixed_dictionaries({"a": scalars, "b": scalars, "c": scalars}),
)
@settings(max_examples=250, deadline=None)
def test_random_comparison_is_auto_only_if_cel_says_true(
    left: str, operator: str, right: str, data: dict[str, Any]
) -> None:
    text = f"{left} {operator} {right}"
    try:
        policy = compile_policy(ApprovalPolicy(auto_approve_if=text), tool=TOOL, input_schema=FLAT)
    except ConfigError:
        pytest.fail(f"refused: {text}")
    assert (policy.judge(data, context()).verdict == "auto") == _expected(text, data)


def test_eight_threads_judge_like_one() -> None:
    policy = compiled(
        auto_approve_if=f"({CHEAP}) && args.recipients.all(r, r.startsWith('x'))", deny_if="args.count > 7"
    )
    rules = compile_rules([GlobalRule(name="r", rule="ctx.user.tier == 'guest'", effect="hide")])
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for turn in range(40):
            cost, count = (number * 13 + turn) % 100, (number + turn) % 10
            expected = "deny" if count > 7 else "auto" if cost < 50 else "ask"
            verdict = policy.judge(
                arguments(totalCost=cost, count=count, recipients=["x" * number] * number), context()
            )
            if verdict.verdict != expected:
                wrong.append((cost, count, verdict))
            tier = "guest" if (number + turn) % 2 else "trusted"
            if (rules.judge(actor={}, tool=TOOL, ctx=context(tier=tier)).effect == "hide") != (tier == "guest"):
                wrong.append(tier)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_concurrent_compiling_and_judging_is_safe() -> None:
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(8):
            limit = number * 10 + turn
            policy = compiled(auto_approve_if=f"args.count < {limit}")
            pair = [policy.judge(arguments(count=count), context()).verdict for count in (limit - 1, limit)]
            if pair != ["auto", "ask"]:
                wrong.append((limit, pair))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_compiled_policies_are_frozen() -> None:
    policy = compiled(auto_approve_if="true")
    with pytest.raises(FrozenInstanceError):
        policy.hash = ""  # type: ignore[misc]


compiled_cheap = compiled(auto_approve_if=CHEAP)
compiled_rule = compile_rules([GlobalRule(name="r", rule="ctx.user.tier == 'guest'", effect="hide")])
HARMLESS = ToolFacts("look", "travel", "local", ("read",))


def rules_of(*rules: tuple[str, str]) -> CompiledRules:
    return compile_rules(
        [
            GlobalRule(name=f"r{i}", rule=text, effect=effect, reason="house rule")
            for i, (effect, text) in enumerate(rules)
        ]
    )


@pytest.mark.row("B78")
def test_rule_over_actor_scope_hides_the_tool() -> None:
    rules = rules_of(("hide", "actor.scope != 'admin' && tool.tags.includes('destructive')"))
    actor, admin = ({"name": "desk", "scope": scope, "tags": []} for scope in ("", "admin"))
    assert rules.judge(actor=actor, tool=TOOL, ctx=context()).effect == "hide"
    assert rules.judge(actor=admin, tool=TOOL, ctx=context()).effect == "none"
    assert rules.judge(actor=actor, tool=HARMLESS, ctx=context()).effect == "none"


@pytest.mark.row("B13", "V01")
def test_rule_over_tags_hides_the_tool() -> None:
    rules = rules_of(("hide", "tool.tags.includes('destructive') && !('trusted' in actor.tags)"))
    verdict = rules.judge(actor={"name": "desk", "tags": []}, tool=TOOL, ctx=context())
    assert verdict.effect == "hide"
    assert verdict.rule is not None
    assert verdict.rule.name == "r0"
    assert verdict.why == "rule `r0` is true: house rule"
    assert rules.judge(actor={"name": "desk", "tags": ["trusted"]}, tool=TOOL, ctx=context()).effect == "none"
    assert rules.judge(actor={"name": "desk", "tags": []}, tool=HARMLESS, ctx=context()).effect == "none"


@pytest.mark.row("X11")
def test_strictest_applicable_rule_decides() -> None:
    everyone = {"name": "desk", "tags": ["t"]}
    for rules, effect in (
        ((("require_approval", "true"), ("deny", "true"), ("hide", "true")), "hide"),
        ((("require_approval", "true"), ("deny", "true"), ("hide", "false")), "deny"),
        ((("require_approval", "true"), ("deny", "false")), "require_approval"),
        ((("require_approval", "false"), ("deny", "false")), "none"),
        ((), "none"),
    ):
        assert rules_of(*rules).judge(actor=everyone, tool=TOOL, ctx=context()).effect == effect


@pytest.mark.row("N28", "V01")
@table("effect", "hide", "deny", "require_approval")
def test_failing_rule_applies(effect: str) -> None:
    rules = rules_of((effect, "actor.tags[3] == 'x'"))
    assert rules.judge(actor={"name": "desk", "tags": []}, tool=TOOL, ctx=context()).effect == effect
    assert rules.judge(actor={"name": "desk"}, tool=TOOL, ctx=context()).effect == effect
    assert rules.judge(actor={"tags": [float("inf")]}, tool=TOOL, ctx={}).effect == effect


def test_invalid_global_rules_are_refused() -> None:
    for text, says in (
        ("args.x == 1", "args"),
        ("tool.tgas == []", "did you mean `tool.tags`"),
        ("tool.name", "true or false"),
    ):
        with pytest.raises(ConfigError, match="global rules: `r0`") as caught:
            rules_of(("hide", text))
        assert says in caught.value.message


@table("name", "auto_approve_if", "handler:rules:limits (admin)", "deny_if, handler:rules:limits", "grant:g")
def test_global_rule_may_have_any_name(name: str) -> None:
    (rule, _) = compile_rules([GlobalRule(name=name, rule="true", effect="hide")]).rules[0]
    assert rule.name == name


DESK = {"name": "desk", "scope": "", "tags": []}
FOREIGN = {"name": "desk", "tags": [2**53]}
"""An actor that no engine may read: the integer is outside the range of JSON."""


def test_policy_reads_call_turn_tool_and_actor() -> None:
    text = "tool.name == 'book_flight' && actor.name == 'desk' && args.totalCost / 8.0 == 1.5 && ctx.turn == 't1'"
    policy = compiled(auto_approve_if=text)
    given = arguments(totalCost=12)
    assert policy.judge(given, context(), DESK).verdict == "auto"
    assert policy.judge(given, context(), DESK | {"name": "other"}).verdict == "ask"
    assert policy.judge(given, context()).verdict == "ask"
    asked = compiled(auto_approve_if="true").judge(given, context(), FOREIGN)
    assert asked.verdict == "ask"
    assert "an integer outside" in asked.why


def test_global_rules_with_arguments_read_the_call() -> None:
    """Data that no engine may read makes every rule apply."""
    rule = GlobalRule(name="dear", rule="args.totalCost / 8.0 > 1.5", effect="deny")
    rules = compile_rules([rule], with_args=True)
    shape = compiled(False).args_shape

    def effect(cost: Any, *, actor: Any = DESK, ctx: Any = None) -> str:
        call = CallArguments(arguments(totalCost=cost), shape)
        return rules.judge(actor=actor, tool=TOOL, ctx=context() if ctx is None else ctx, call=call).effect

    assert (effect(12), effect(13)) == ("none", "deny")
    assert effect(12, actor=FOREIGN) == "deny"
    assert effect(12, ctx=context(id=2**53)) == "deny"
    never = compile_rules([GlobalRule(name="never", rule="false", effect="deny")], with_args=True)
    for actor, ctx, args in ((FOREIGN, {}, {}), (DESK, {"x": 2**53}, {}), (DESK, {}, {"x": 2**53})):
        found = never.judge(actor=actor, tool=TOOL, ctx=ctx, call=CallArguments(args, shape))
        assert found.effect == "deny"
        assert "an integer outside" in str(found.engines)
    assert never.judge(actor=DESK, tool=TOOL, ctx={}, call=CallArguments({}, shape)).effect == "none"


def test_verdict_names_the_rule_and_every_engine_answer() -> None:
    policy = compiled(
        deny_if="args.flag",
        require_approval_if="args.count > 1",
        auto_approve_if="true",
        terms=[{"when": "args.count > 2", "quorum": 2}, {"when": "args.count > 5", "quorum": 3}],
    )
    asked = policy.judge(arguments(count=3), context())
    assert (asked.verdict, asked.rule, asked.rule_text) == (
        "ask",
        RuleReference(name="require_approval_if"),
        "args.count > 1",
    )
    assert [each.kind for each in asked.engines] == [*["false"] * 2, *["true"] * 4, *["false"] * 2]
    assert asked.terms.quorum == 2
    passed = policy.judge(arguments(count=1), context())
    assert (passed.verdict, passed.terms.quorum) == ("auto", 1)
    assert [each.kind for each in passed.engines] == [*["false"] * 4, *["true"] * 2, *["false"] * 4]
    assert (
        compiled(auto_approve_if="args.flag")
        .judge(arguments(), context())
        .why.startswith("`auto_approve_if` is false, so ")
    )


def test_automatic_verdict_still_names_the_approvers() -> None:
    routed = compiled(auto_approve_if="true", route_to="['user:ana']", approvers=["role:finance"])
    assert routed.judge(arguments(), context()).terms.approvers == ("user:ana",)
    for requires in (True, False):
        found = compile_policy(requires, tool=TOOL, input_schema=SCHEMA, default=("role:finance",))
        verdict = found.judge({}, {})
        assert verdict.terms.approvers == ("role:finance",)
        assert verdict.rule_text == ""


def test_policy_hash_covers_only_the_normalized_policy() -> None:
    terms = [{"when": "args.count > 2", "quorum": 2}]
    policy = compiled(auto_approve_if=" args.flag ", terms=[{"when": " args.count > 2", "quorum": 2}])
    assert policy.hash == sha256_hex({"requires_approval": {"auto_approve_if": "args.flag", "terms": terms}})
    assert compiled(True).hash == sha256_hex({"requires_approval": True})


def test_handler_without_rules_may_approve_a_call() -> None:
    assert compiled(handler="desk.rules:judge").needs_person == "maybe"
    assert compiled(handler="desk.rules:judge", deny_if="args.flag").needs_person == "always"
