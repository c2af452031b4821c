from typing import Any

import pytest
from policy_samples import SCHEMA, TOOL, arguments, compiled, context
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy import first_engine, second_engine
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.compiled_policy import CallArguments, CompiledRules, RulesVerdict, compile_policy, compile_rules
from signoff.policy.context_shapes import context_shape
from signoff.policy.schema_shapes import read_schema

ACTOR = {"name": "desk", "tags": ["money"]}


def rule(name: str, expression: str, effect: Any = "deny", reason: str = "") -> GlobalRule:
    return GlobalRule(name=name, rule=expression, effect=effect, reason=reason)


def ruled(rules: CompiledRules, ctx: Any = None, actor: Any = ACTOR) -> RulesVerdict:
    return rules.judge(actor=actor, tool=TOOL, ctx=context() if ctx is None else ctx)


# Rules


def test_missing_or_inapplicable_global_rules_have_no_effect() -> None:
    assert ruled(compile_rules([])) == RulesVerdict("none", None, "there are no global rules")
    found = ruled(compile_rules([rule("a", "actor.name == 'x'"), rule("b", "'x' in actor.tags")]))
    assert (found.effect, found.rule, found.why) == ("none", None, "no global rule applies")
    assert [(each.rule, each.kind) for each in found.engines] == [("a", "false")] * 2 + [("b", "false")] * 2


def test_first_applicable_rule_is_named() -> None:
    rules = [
        rule("a", "actor.name == 'x'"),
        rule("b", "tool.name == 'book_flight'", reason="because"),
        rule("c", "true"),
    ]
    found = ruled(compile_rules(rules))
    assert (found.effect, found.rule, found.why) == ("deny", rules[1], "rule `b` is true: because")
    assert [each.rule for each in found.engines] == ["a", "a", "b", "b"]
    assert ruled(compile_rules(rules[2:])).why == "rule `c` is true"


@table(
    ("ctx", "actor", "why"),
    ({**context(), "x": float("nan")}, ACTOR, "a number that is not finite"),
    (context(), {"name": "\ud800", "tags": []}, "text that is not Unicode (a lone surrogate)"),
    (context(), {"name": "desk", "tags": [2**60]}, "an integer outside ±(2^53-1)"),
    (context(), 7, "the data cannot be read (TypeError)"),
)
def test_global_rule_on_unreadable_data_applies(ctx: Any, actor: Any, why: str) -> None:
    found = ruled(compile_rules([rule("a", "false", "hide")]), ctx, actor)
    assert found.effect == "hide"
    assert found.why == f"rule `a` could not be evaluated ({why})"


# Routes


@table(
    ("routed", "asked"),
    (["user:a"], ("user:a",)),
    (["user:a", "role:b", "user:a"], ("user:a", "role:b")),
    ([f"user:u{n}" for n in range(100)], tuple(f"user:u{n}" for n in range(100))),
    ([f"user:u{n}" for n in range(101)], ("role:boss",)),
    ([], ("role:boss",)),
    (["user:a", "somebody"], ("role:boss",)),
)
def test_route_gives_approvers_or_falls_back_to_the_named_ones(routed: list[str], asked: tuple[str, ...]) -> None:
    found = compiled(route_to="args.recipients", approvers=["role:boss"]).judge(arguments(recipients=routed), context())
    assert found.terms.approvers == asked
    assert ("`route_to` gave no list of people" in found.why) == (asked == ("role:boss",))


# Errors


def problem(**fields: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        compiled(**fields)
    return caught.value


def test_error_points_at_its_column() -> None:
    text = "true && args.totlCost > 5"
    found = problem(deny_if=text)
    assert found.message.startswith("tool `book_flight`: `deny_if` column ")
    assert found.message.endswith(f"did you mean `args.totalCost`? (in `{text}`)")
    assert (found.context["tool_name"], found.context["field"], found.context["value"]) == (
        "book_flight",
        "deny_if",
        text,
    )
    assert f" column {found.context['column']}: " in found.message


@table(("size", "shown"), (300, 300), (301, 300))
def test_long_expression_is_cut_in_an_error(size: int, shown: int) -> None:
    text = "args.count + size('" + "x" * (size - 21) + "')"
    assert len(text) == size
    assert problem(deny_if=text).message.endswith(f"(in `{text[:shown]}{'' if size == shown else '...'}`)")


def test_duplicate_context_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="declared already") as caught:
        context_shape({"user.name": {"type": "string"}})
    assert caught.value.message == "context `user.name` is declared already; choose another name"
    assert (caught.value.context["field"], caught.value.context["value"]) == ("user.name", "user.name")


# The second engine


@table(
    ("error", "note"),
    (ValueError("no such key: hunter2"), "no such key"),
    (KeyError("hunter2"), "KeyError"),
    (ValueError(), "ValueError"),
    (ValueError("divide by zero"), "divide by zero"),
)
def test_note_of_the_second_engine_quotes_no_data(error: Exception, note: str) -> None:
    assert second_engine._note(error) == note


# Schemas


# Cards and notes


@table(
    ("show", "field", "name"),
    ({"only": ["currency", "zzz"]}, "show.only", "zzz"),
    ({"secret": ["yyy"]}, "show.secret", "yyy"),
)
def test_card_may_only_name_existing_arguments(show: Any, field: str, name: str) -> None:
    found = problem(show=show)
    there = "`count`, `currency`, `flag`, `in`, `legs`, `meta`, `my-field`, `note`, `numbers`, `odd`, `optional`"
    assert found.message == (
        f"tool `book_flight`: `{field}` names `{name}`, which is no argument; there are {there}, "
        "`recipients`, `totalCost`"
    )
    assert (found.context["tool_name"], found.context["field"], found.context["value"]) == ("book_flight", field, name)


def test_card_of_a_tool_without_arguments_may_not_name_any() -> None:
    policy = ApprovalPolicy.model_validate({"show": {"secret": ["pin"]}})
    closed = {"type": "object", "additionalProperties": False}
    with pytest.raises(ConfigError, match=r"which is no argument; there are none$"):
        compile_policy(policy, tool=TOOL, input_schema=closed)


@table(
    ("text", "note"),
    ("INVALID_ARGUMENT: divide by zero [INTERNAL]\nstack", "divide by zero"),
    ("NOT_FOUND: Key not found in map : 'hunter2'", "Key not found in map"),
    ("INTERNAL: No matching overloads found : _<_(int, string)", "No matching overloads found: _<_(int, string)"),
    ("Odd thing: with more", "Odd thing: with more"),
    ("plain", "plain"),
    ("x" * 201, "x" * 200),
)
def test_note_of_the_first_engine_quotes_no_data(text: str, note: str) -> None:
    assert first_engine._note(text) == note


def test_global_rules_over_arguments_judge_each_call() -> None:
    rules = compile_rules([rule("a", "args.totalCost > 50.0")], with_args=True)
    shape = read_schema(SCHEMA)

    def effect(**changes: Any) -> str:
        call = CallArguments(arguments(**changes), shape)
        return rules.judge(actor=ACTOR, tool=TOOL, ctx=context(), call=call).effect

    assert [effect(totalCost=50), effect(totalCost=51), effect(totalCost=2**60)] == ["none", "deny", "deny"]
    assert rules.judge(actor=ACTOR, tool=TOOL, ctx=context()).effect == "deny"
    found = rules.judge(actor=ACTOR, tool=TOOL, ctx=context(), call=CallArguments({"totalCost": float("nan")}, shape))
    assert found.why == "rule `a` could not be evaluated (a number that is not finite)"
    with pytest.raises(ConfigError, match="args"):
        compile_rules([rule("a", "args.totalCost > 50.0")])


@table(
    ("text", "column", "words"),
    ("args.flag and args.totalCost < 50", 11, "CEL has no `and`; write `&&`"),
    ("args.flag or args.totalCost < 50", 11, "CEL has no `or`; write `||`"),
    ("not args.flag", 1, "CEL has no `not`; write `!(...)`"),
    ("not(args.flag)", 1, "CEL has no `not`; write `!(...)`"),
    ("args.flag AND args.flag", 11, "CEL has no `AND`; write `&&`"),
    ("'a and b' == 'or' or args.flag", 19, "CEL has no `or`; write `||`"),
    ("args.flag & args.flag", 11, "CEL has no `&`; write `&&`"),
    ("args.flag = true", 11, "CEL has no `=`; write `==`"),
    ("args.flag == True", 14, "CEL has no `True`; write `true`"),
)
def test_operator_of_another_language_names_the_operator_of_cel(text: str, column: int, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compiled(auto_approve_if=text)
    assert f"column {column}: {words} (in `" in caught.value.message
