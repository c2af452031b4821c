import dataclasses
from typing import Any

import pytest
from policy_samples import arguments, compiled, context
from tables import table

from signoff.contracts.approval import AppliedTerm, ApproverGroup
from signoff.contracts.call import REQUIRES_APPROVAL, RuleReference
from signoff.contracts.errors import ConfigError
from signoff.formats.durations import seconds
from signoff.formats.replace import replace
from signoff.policy.answer import EngineAnswer
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.policy.cases import PolicyCase, read_case, run_cases
from signoff.policy.compiled_policy import PolicyVerdict, compile_rules
from signoff.policy.explanation import explain_json, explain_text
from signoff.policy.expression import single_engine_problem
from signoff.policy.terms import VerdictTerms

CASE = {"name": "cheap", "tool": "book_flight", "expect": "auto"}
KEYS = "allowed are `name`, `tool`, `args`, `ctx`, `now`, `expect`, `quorum`"
DAY = 86_400.0


def refused(build: Any, *args: Any) -> tuple[str, Any, Any]:
    with pytest.raises(ConfigError) as caught:
        build(*args)
    return caught.value.message, caught.value.context.get("field"), caught.value.context.get("value")


# Cases


def test_case_is_read_in_full() -> None:
    assert read_case(CASE) == PolicyCase("cheap", "book_flight", {}, {}, "auto")
    whole = {**CASE, "args": {"a": 1}, "ctx": {"b": 2}, "expect": "deny"}
    assert read_case(whole) == PolicyCase("cheap", "book_flight", {"a": 1}, {"b": 2}, "deny")
    assert read_case({**CASE, "expect": "ask"}).expect == "ask"


@table(
    ("changes", "expected"),
    ({"expects": "ask"}, ("case 3: unknown key `expects`; did you mean `expect`?", "expects", "ask")),
    ({"zzz": 7}, (f"case 3: unknown key `zzz`; {KEYS}", "zzz", 7)),
    ({7: 8}, (f"case 3: unknown key `7`; {KEYS}", "7", 8)),
    ({"name": ""}, ("case 3: `name` must be a text that is not empty", "name", "")),
    ({"tool": None}, ("case 3: `tool` must be a text that is not empty", "tool", None)),
    ({"expect": True}, ("case 3: `expect` must be a text that is not empty", "expect", True)),
    ({"args": []}, ("case 3: `args` must be a mapping", "args", [])),
    ({"ctx": None}, ("case 3: `ctx` must be a mapping", "ctx", None)),
    ({"expect": "maybe"}, ("case 3: `expect` is `maybe`; allowed are `auto`, `ask`, `deny`", "expect", "maybe")),
)
def test_malformed_case_has_an_exact_message(changes: dict[Any, Any], expected: tuple[str, Any, Any]) -> None:
    assert refused(read_case, {**CASE, **changes}, 3) == expected


@table("key", "name", "tool", "expect")
def test_incomplete_case_names_the_missing_key(key: str) -> None:
    short = {name: value for name, value in CASE.items() if name != key}
    assert refused(read_case, short) == (f"case 1: `{key}` must be a text that is not empty", key, None)


def test_cases_are_numbered_from_one() -> None:
    policies = {"book_flight": compiled(auto_approve_if="ctx.user.tier == 'trusted' && args.totalCost < 50")}
    good = {**CASE, "args": arguments(), "ctx": context()}
    assert [each.verdict.verdict for each in run_cases([good, {**good, "ctx": context(tier="x")}], policies)] == [
        "auto",
        "ask",
    ]
    assert refused(run_cases, [good, {**good, "name": ""}], policies)[0].startswith("case 2: ")


@table(("tool", "hint"), ("book_flihgt", "did you mean `book_flight`?"), ("zzz", "the manifest declares no such tool"))
def test_case_of_an_unknown_tool_suggests_a_known_one(tool: str, hint: str) -> None:
    result = (f"case `cheap`: unknown tool `{tool}`; {hint}", "tool", tool)
    assert refused(run_cases, [{**CASE, "tool": tool}], {"book_flight": compiled(), "x": compiled()}) == result


# Explanations


FULL = PolicyVerdict(
    "ask",
    RuleReference(name="auto_approve_if"),
    "args.totalCost < 50",
    ("it is so",),
    "hash",
    "two engines",
    (EngineAnswer("auto_approve_if", "one", "true", "sure"), EngineAnswer("auto_approve_if", "two", "false", "")),
    VerdictTerms(
        approvers=("role:a", "user:b"),
        groups=(ApproverGroup(of=("role:a",)), ApproverGroup(of=("user:b",))),
        quorum=2,
        applied=(AppliedTerm(reason="it is the weekend", quorum=2),),
    ),
)
BARE = PolicyVerdict("auto", REQUIRES_APPROVAL, "", ("nobody asks",), "hash", "two engines", ())


def test_explanation_has_a_line_for_each_part() -> None:
    assert explain_text(FULL).split("\n") == [
        "ask: it is so",
        "rule: auto_approve_if: args.totalCost < 50",
        "engine: one says true to auto_approve_if (sure)",
        "engine: two says false to auto_approve_if",
        "approvers: role:a, user:b",
        "people: 2",
        "group: 1 of role:a",
        "group: 1 of user:b",
        "stricter: it is the weekend",
        "policy: hash by two engines",
    ]
    routed = dataclasses.replace(BARE, terms=VerdictTerms(approvers=("role:a",)))
    assert explain_text(routed).split("\n")[1] == "approvers, should a gate ask: role:a"
    assert explain_text(BARE).split("\n") == ["auto: nobody asks", "policy: hash by two engines"]


def test_json_explanation_has_every_field() -> None:
    assert explain_json(FULL) == {
        "verdict": "ask",
        "rule": {"kind": "policy", "name": "auto_approve_if"},
        "rule_text": "args.totalCost < 50",
        "why": "it is so",
        "policy_hash": "hash",
        "evaluators": "two engines",
        "terms": {
            "approvers": ["role:a", "user:b"],
            "groups": [{"of": ["role:a"], "quorum": 1}, {"of": ["user:b"], "quorum": 1}],
            "quorum": 2,
            "min_assurance": "channel",
            "timeout": 86_400.0,
            "remind_after": None,
            "escalate_after": None,
            "escalate_to": [],
            "on_timeout": "deny",
            "asked_first": [],
            "applied": [AppliedTerm(reason="it is the weekend", quorum=2).model_dump(mode="json")],
        },
        "level": "user",
        "engines": [
            {"rule": "auto_approve_if", "engine": "one", "kind": "true", "note": "sure"},
            {"rule": "auto_approve_if", "engine": "two", "kind": "false", "note": ""},
        ],
    }
    assert (explain_json(BARE)["engines"], explain_json(BARE)["terms"]["approvers"]) == ([], [])


# Declarations


@table(
    ("data", "expected"),
    (
        {"autoApproveIf": "true", "auto_approve_if": "false"},
        (
            "`auto_approve_if` is given twice, as `auto_approve_if` and as `autoApproveIf`, with different values; "
            "keep one",
            "auto_approve_if",
            "false",
        ),
    ),
    ({"autoAproveIf": "x"}, ("unknown key `autoAproveIf`; did you mean `autoApproveIf`?", "auto_aprove_if", "x")),
    ({"show": {"zzz": 1}}, ("unknown key `zzz`; `signoff manifest schema --help` lists the keys", "zzz", 1)),
    (
        {"timeout": "3x"},
        ("`timeout` `3x` is not a duration; write `24h`, `15m`, `1d2h` or seconds as a number", "timeout", "3x"),
    ),
    (
        {"approvers": ["role:a", "finance"]},
        (
            "`approvers.1` `finance` is not an approver; write `role:<role>`, `user:<id>` or `oncall:<rota>`",
            "approvers.1",
            "finance",
        ),
    ),
    ({"quorum": 0}, ("`quorum` input should be greater than or equal to 1", "quorum", 0)),
    (
        {"onTimeout": "approve"},
        (
            "`on_timeout: approve` is never allowed; silence is not consent, leave `on_timeout` out",
            "on_timeout",
            "approve",
        ),
    ),
    (
        {"handler": "desk"},
        (
            "`handler` `desk` is not `module:function`; name the function that answers `auto`, `ask` or `deny`",
            "handler",
            "desk",
        ),
    ),
    ({"on_timeout": "wait"}, ("`on_timeout` input should be 'deny' or 'escalate'", "on_timeout", "wait")),
    (
        {"on_timeout": "escalate"},
        ("`on_timeout` has no approvers to escalate to; name them in `escalate_to`", "escalate_to", ()),
    ),
    (
        {"escalate_after": "1h"},
        ("`escalate_after` has no approvers to escalate to; name them in `escalate_to`", "escalate_to", ()),
    ),
    (
        {"escalateTo": ["role:cfo"]},
        ("`escalate_to` is never used; add `escalate_after`, or `on_timeout: escalate`", "escalate_to", ("role:cfo",)),
    ),
    (
        {"escalate_to": ["cfo"], "escalate_after": "1h"},
        (
            "`escalate_to.0` `cfo` is not an approver; write `role:<role>`, `user:<id>` or `oncall:<rota>`",
            "escalate_to.0",
            "cfo",
        ),
    ),
    (
        {"remindAfter": "24h"},
        ("`remind_after` is not before `timeout`, so no request waits then; make it shorter", "remind_after", 86_400.0),
    ),
    (
        {"escalate_after": "1h", "timeout": "1h", "escalate_to": ["role:cfo"]},
        ("`escalate_after` is not before `timeout`; make it shorter", "escalate_after", 3_600.0),
    ),
    (
        {"escalate_after": "1h", "remind_after": "1h", "escalate_to": ["role:cfo"]},
        ("`escalate_after` is before `remind_after`; remind first, or not at all", "escalate_after", 3_600.0),
    ),
)
def test_invalid_policy_has_an_exact_message(data: dict[str, Any], expected: tuple[str, Any, Any]) -> None:
    assert refused(ApprovalPolicy.model_validate, data) == expected


@table(
    ("value", "words"),
    (None, "must be seconds as a number, or a text such as `24h`, `15m`, `1d2h`"),
    (True, "must be seconds as a number, or a text such as `24h`, `15m`, `1d2h`"),
    (0, "must be more than 0 and at most 366 days"),
    (366 * DAY + 1, "must be more than 0 and at most 366 days"),
    ("  ", "`  ` is not a duration; write `24h`, `15m`, `1d2h` or seconds as a number"),
)
def test_invalid_duration_has_an_exact_message(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        seconds(value)
    assert str(caught.value) == words


def test_longest_duration_is_a_leap_year() -> None:
    assert seconds("366d") == seconds(366 * DAY) == 366 * DAY
    assert seconds("1d1h1m1s") == DAY + 3_661
    assert isinstance(seconds(1), float)


# Global rules


def test_global_rules_are_judged_strictest_first() -> None:
    rules = [
        GlobalRule(name="c", rule="true", effect="require_approval"),
        GlobalRule(name="b", rule="true", effect="deny", reason="r"),
        GlobalRule(name="a", rule="true", effect="hide"),
        GlobalRule(name="d", rule="true", effect="hide"),
    ]
    found = compile_rules(rules)
    assert [rule.name for rule, _ in found.rules] == ["a", "d", "b", "c"]
    hashes = {compile_rules(rules[:count]).hash for count in range(len(rules) + 1)}
    assert len(hashes) == 5
    assert found.hash == compile_rules(rules).hash
    other = [rules[0], replace(rules[1], reason="s"), *rules[2:]]
    assert compile_rules(other).hash != found.hash
    assert found.evaluators == compiled().evaluators


def test_duplicate_rule_names_are_refused() -> None:
    rules = [GlobalRule(name=name, rule="true", effect="hide") for name in ("a", "b", "b")]
    text = "two global rules have the name `b`; give each rule a different name"
    assert refused(compile_rules, rules)[:2] == (text, "b")


def test_global_rule_sees_only_the_declared_context() -> None:
    rule = GlobalRule(name="r", rule="ctx.project == 'x'", effect="deny")
    found = compile_rules([rule], context_schema={"project": {"type": "string"}})
    facts = compiled().tool
    verdict = found.judge(actor={"name": "desk", "tags": []}, tool=facts, ctx={**context(), "project": "x"})
    assert verdict.effect == "deny"
    assert "global rules" in refused(compile_rules, [rule])[0]


# Parsing


class CELParseError(Exception):
    def __init__(self, column: Any) -> None:
        super().__init__("x")
        self.column = column


def test_expression_readable_by_one_engine_is_an_error() -> None:
    here = "the second engine cannot read it here; write it more plainly"
    assert single_engine_problem(CELParseError(7)) == (here, 7)
    assert single_engine_problem(CELParseError(None)) == (here, 0)
    assert single_engine_problem(ValueError("x")) == ("the second engine cannot read it; write it more plainly", 0)
