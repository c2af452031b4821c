import json
from typing import Any

import pytest
from policy_samples import arguments, compiled, context
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.cases import run_cases
from signoff.policy.explanation import explain_json, explain_text

POLICIES = {"book_flight": compiled(auto_approve_if="args.totalCost < 50", approvers=["role:finance"])}


def case(**changes: Any) -> dict[str, Any]:
    plain = {"name": "cheap", "tool": "book_flight", "args": arguments(), "ctx": context(), "expect": "auto"}
    return plain | changes


@pytest.mark.row("V02")
def test_cases_report_expected_and_actual_verdict() -> None:
    good, bad = run_cases([case(), case(name="dear", args=arguments(totalCost=60))], POLICIES)
    assert good.passed
    assert not bad.passed
    assert (bad.case.name, bad.verdict.verdict) == ("dear", "ask")
    assert bad.verdict.why == "`auto_approve_if` is false, so the call needs approval"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (case(expects="auto"), "case 2: unknown key `expects`; did you mean `expect`"),
        (case(zzz=1), "allowed are"),
        (case(expect="maybe"), "allowed are `auto`, `ask`, `deny`"),
        (case(name=""), "`name` must be"),
        (case(args=[]), "`args` must be a mapping"),
        (case(tool="book_flihgt"), "did you mean `book_flight`"),
        (case(tool="zzz"), "no such tool"),
        ({"tool": "book_flight", "expect": "auto"}, "`name` must be"),
    ],
)
def test_malformed_case_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_cases([case(), data], POLICIES)
    assert says in caught.value.message


@pytest.mark.row("V02")
def test_verdict_is_explained_in_text_and_json() -> None:
    verdict = POLICIES["book_flight"].judge(arguments(totalCost=60), context())
    text = explain_text(verdict)
    assert text.startswith("ask: `auto_approve_if` is false")
    assert "cel-python says false to auto_approve_if" in text
    assert "approvers: role:finance" in text
    body = json.loads(json.dumps(explain_json(verdict)))
    assert body["verdict"] == "ask"
    assert body["rule_text"] == "args.totalCost < 50"
    assert [each["engine"] for each in body["engines"]] == ["cel-expr-python", "cel-python"]


def test_case_is_judged_for_the_actor_in_its_context() -> None:
    policies = {"book_flight": compiled(auto_approve_if="actor.name == 'desk'", deny_if="actor.name == ''")}
    nobody = {name: value for name, value in context().items() if name != "actor"}
    found = run_cases([case(), case(ctx=context() | {"actor": "clerk"}), case(ctx=nobody)], policies)
    assert [each.verdict.verdict for each in found] == ["auto", "ask", "deny"]


@table(("field", "value"), ("quorum", "2"), ("now", "tomorrow"))
def test_unreadable_case_error_quotes_the_value(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        run_cases([case(**{field: value})], POLICIES)
    assert (caught.value.context["field"], caught.value.context["value"]) == (field, value)
