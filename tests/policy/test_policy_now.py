import time
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from policy_samples import arguments, compiled, context
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import GlobalRule
from signoff.policy.cases import read_case, run_cases
from signoff.policy.compiled_policy import CompiledPolicy, compile_rules
from signoff.policy.context_shapes import now_record
from signoff.policy.filter_expression import compile_filter

LISBON = ZoneInfo("Europe/Lisbon")
SATURDAY = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
FRIDAY = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
WEEKEND = "ctx.now.weekday in ['Sa', 'Su']"
TWO = {"terms": [{"when": WEEKEND, "quorum": 2, "reason": "it is the weekend"}]}


def judged(policy: CompiledPolicy, at: datetime | None, zone: ZoneInfo = LISBON) -> Any:
    """At `None` the instant is unknown."""
    now = {} if at is None else {"now": now_record(at, zone)}
    return policy.judge(arguments(), context() | now)


@table(
    ("at", "zone", "there"),
    (datetime(2026, 7, 5, 23, 59, 59, tzinfo=UTC), "Europe/Lisbon", ("2026-07-06", 0, 59, "Mo")),
    (datetime(2026, 7, 5, 23, 59, 59, tzinfo=UTC), "UTC", ("2026-07-05", 23, 59, "Su")),
    (datetime(2026, 3, 29, 0, 59, tzinfo=UTC), "Europe/Lisbon", ("2026-03-29", 0, 59, "Su")),
    (datetime(2026, 3, 29, 1, 0, tzinfo=UTC), "Europe/Lisbon", ("2026-03-29", 2, 0, "Su")),
    (datetime(2026, 1, 1, 9, 30, tzinfo=ZoneInfo("Asia/Tokyo")), "America/New_York", ("2025-12-31", 19, 30, "We")),
)
def test_now_record_uses_the_declared_time_zone(at: datetime, zone: str, there: tuple[Any, ...]) -> None:
    found = now_record(at, ZoneInfo(zone))
    assert (found["date"], found["hour"], found["minute"], found["weekday"]) == there
    assert found["at"] == f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    assert found["zone"] == zone
    assert {type(value) for value in found.values()} == {str, int}


def test_time_zone_of_the_machine_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = now_record(SATURDAY, LISBON)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert now_record(SATURDAY, LISBON) == there
    finally:
        monkeypatch.undo()
        time.tzset()


def test_weekend_rule_needs_two_approvers() -> None:
    policy = compiled(**TWO)
    assert judged(policy, FRIDAY).terms.quorum == 1
    assert judged(policy, SATURDAY).terms.quorum == 2
    monday_in_tokyo = datetime(2026, 11, 22, 15, 30, tzinfo=UTC)
    assert judged(policy, monday_in_tokyo, ZoneInfo("Asia/Tokyo")).terms.quorum == 1
    assert judged(policy, monday_in_tokyo, LISBON).terms.quorum == 2


@table(
    ("fields", "verdict", "quorum"),
    ({"auto_approve_if": "ctx.now.hour >= 8 && ctx.now.hour < 18"}, "ask", 1),
    ({"auto_approve_if": "true", "require_approval_if": "ctx.now.weekday == 'Sa'"}, "ask", 1),
    ({"deny_if": "ctx.now.date == '2026-12-24'"}, "deny", 1),
    (TWO, "ask", 2),
)
def test_rule_without_a_known_instant_fails_safe(fields: dict[str, Any], verdict: str, quorum: int) -> None:
    found = judged(compiled(**fields), None)
    assert (found.verdict, found.terms.quorum) == (verdict, quorum)


@table(
    ("text", "reads"),
    ("ctx.now.hour < 9", True),
    ("has(ctx.now.at) && true", True),
    ("['Sa'].exists(d, d == ctx.now.weekday)", True),
    ("has(ctx.now)", True),
    ("has(ctx.user)", False),
    ("ctx.user.tier == 'now'", False),
    ("args.count > 1", False),
)
def test_policy_knows_whether_it_reads_the_instant(text: str, reads: bool) -> None:
    assert compiled(auto_approve_if=text).reads_now is reads
    assert compiled(terms=[{"when": text, "quorum": 2}]).reads_now is reads


@table("text", "ctx.now > 5", "ctx.now.second == 1", "ctx.now.hour == '9'", "now.hour == 9")
def test_now_record_has_no_other_fields(text: str) -> None:
    with pytest.raises(ConfigError):
        compiled(auto_approve_if=text)


def test_hide_rule_and_filter_may_not_read_the_instant() -> None:
    with pytest.raises(ConfigError, match=r"^global rules: .*use the tool's `hours`") as caught:
        compile_rules([GlobalRule(name="night", rule="ctx.now.hour > 20", effect="hide")])
    assert (caught.value.context["field"], caught.value.context["value"]) == ("night", "ctx.now.hour > 20")
    with pytest.raises(ConfigError, match="use the tool's `hours`"):
        compile_filter("ctx . now.hour > 20", owner="actor `a`", field="filter")
    assert compile_rules([GlobalRule(name="night", rule="ctx.now.hour > 20", effect="deny")]).reads_now


@table(
    "text",
    "(ctx).now.hour > 20",
    "has((ctx).now.hour)",
    "[ctx.now].exists(n, n.hour > 20)",
    "[ctx].exists(c, c.now.hour > 20)",
    "(true ? ctx : ctx).now.hour > 20",
    "dyn(ctx)['now'].hour > 20",
)
def test_instant_is_found_in_every_spelling(text: str) -> None:
    """The places that the expression reads count. A text search for `ctx.now` let hide rules read it."""
    with pytest.raises(ConfigError, match="use the tool's `hours`"):
        compile_rules([GlobalRule(name="night", rule=text, effect="hide")])
    with pytest.raises(ConfigError, match="use the tool's `hours`"):
        compile_filter(text, owner="actor `a`", field="filter")


def test_instant_behind_a_macro_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the name `\.ctx` begins with a point"):
        compile_rules([GlobalRule(name="night", rule="[0].exists(ctx, .ctx.now.hour > 20)", effect="hide")])


def test_filter_may_read_an_optional_context_field() -> None:
    found = compile_filter(
        "has(ctx.mfa) && ctx.mfa", owner="route `r`", field="tool_filter", context_schema={"mfa": {"type": "boolean"}}
    )
    assert not found.expression.reads_now


def test_text_literal_does_not_read_the_instant() -> None:
    (hidden,) = compile_rules([GlobalRule(name="odd", rule="ctx.user.tier == 'ctx.now'", effect="hide")]).rules
    assert not hidden[1].reads_now
    assert not compile_filter("ctx.user.tier == 'ctx.now'", owner="actor `a`", field="filter").expression.reads_now


def test_cases_are_judged_at_their_instant() -> None:
    case = {"name": "a weekend", "tool": "pay", "args": arguments(), "ctx": context(), "expect": "ask"}
    policies = {"pay": compiled(**TWO)}
    for now, quorum, passed in (
        ("2026-11-21T23:30:00+00:00", 2, True),
        ("2026-11-20T12:00:00+00:00", 2, False),
        (FRIDAY, 1, True),
    ):
        (found,) = run_cases([{**case, "now": now, "quorum": quorum}], policies, LISBON)
        assert found.passed is passed


@table(("field", "value"), ("now", "noon"), ("now", "2026-11-21T10:00:00"), ("quorum", "2"))
def test_malformed_case_error_names_the_field(field: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_case({"name": "x", "tool": "pay", "expect": "ask", field: value})
    assert caught.value.context["field"] == field


def test_two_refund_rules_fit_one_policy_without_a_function() -> None:
    small = "args.totalCost <= 50.0"
    policy = compiled(
        auto_approve_if=small, require_approval_if=WEEKEND, terms=[{"when": "args.totalCost > 1000.0", "quorum": 2}]
    )

    def verdict_at(cost: float, at: datetime) -> tuple[str, int]:
        found = policy.judge(arguments(totalCost=cost), context() | {"now": now_record(at, LISBON)})
        return found.verdict, found.terms.quorum

    assert [verdict_at(20.0, FRIDAY), verdict_at(20.0, SATURDAY)] == [("auto", 1), ("ask", 1)]
    assert [verdict_at(900.0, FRIDAY), verdict_at(1_001.0, FRIDAY), verdict_at(1_001.0, SATURDAY)] == [
        ("ask", 1),
        ("ask", 2),
        ("ask", 2),
    ]
