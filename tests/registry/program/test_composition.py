import json
import re
from pathlib import Path

import pytest
from tests.tables import table

from signoff import ConfigError
from signoff.registry.program.program import Program

MODEL = "openai:gpt-5"


async def refund(customer: str, amount: float) -> str:
    """Refund a customer."""
    return f"refunded {amount} to {customer}"


def compose(tmp_path: Path, manifest: str, **fields: object) -> Program:
    path = tmp_path / "signoff.yaml"
    path.write_text(f"version: 1\n{manifest}", encoding="utf-8")
    app = Program(model=MODEL, manifest=path)
    app.tool(**fields)(refund)  # type: ignore[arg-type]
    app.actor("clerk", tools=[refund])
    return app


def test_manifest_adds_actors_rules_and_people_to_the_program(tmp_path: Path) -> None:
    manifest = """
actors: {guide: {tools: [refund], instructions: Be kind.}}
policies: [{name: at-night, rule: "tool.name == 'refund'", effect: require_approval}]
people: [{id: ana, roles: [approvers]}]
"""
    app = compose(tmp_path, manifest)
    app.policy("always", "tool.name == 'refund'", effect="require_approval")
    catalog = app.build()
    assert [*catalog.actors] == ["guide", "clerk"]
    assert catalog.actor("guide").model == MODEL
    assert [rule.name for rule in catalog.declared_rules] == ["at-night", "always"]
    assert catalog.people.find("ana") is not None


@table(
    ("ours", "theirs"),
    ({}, "effect: Refund it, title: Refund"),
    ({"timeout": 60}, "timeout: 30s"),
    ({}, "timeout: 1m"),
    ({"hours": ["Mo-Fr 08:00-18:00 UTC", "Sa 09:00-12:00 UTC"]}, "hours: 'Mo-Fr 08:00-18:00 UTC'"),
    ({"tenants": ["north", "south"]}, "tenants: [north]"),
    ({"peer_exposed": True}, "peer_exposed: false"),
    ({}, "untrusted_output: true"),
    ({"max_result_chars": 500}, "max_result_chars: 100"),
    ({"usage_limit": {"count": 5, "per": "user", "period": "1d"}}, "usage_limit: {count: 3, per: user, period: 1d}"),
    ({"secrets": ["customer"]}, "secrets: [amount]"),
)
def test_manifest_may_tighten_a_tool(tmp_path: Path, ours: dict[str, object], theirs: str) -> None:
    tool = compose(tmp_path, f"tools: {{refund: {{{theirs}}}}}", **ours).build().resolve("refund")
    assert tool is not None


@table(
    ("ours", "theirs", "words"),
    ({"timeout": 60}, "timeout: 2m", "`timeout` of tool `refund` may be at most `60`, which the code declares"),
    ({}, "timeout: 10m", "`timeout` of tool `refund` may be at most `300.0`"),
    ({"hours": ["Mo-Fr 08:00-18:00 UTC"]}, "hours: 'Mo-Su 00:00-24:00 UTC'", "may only narrow"),
    ({"tenants": ["north"]}, "tenants: [north, south]", "may only narrow"),
    ({}, "peer_exposed: true", "may only become `false` here"),
    ({"untrusted_output": True}, "untrusted_output: false", "may only become `true` here"),
    ({"usage_limit": {"count": 5, "per": "user", "period": "1d"}}, "usage_limit: {count: 9, per: user, period: 1d}",
     "may only lower the count"),
    ({"usage_limit": {"count": 5, "per": "user", "period": "1d"}}, "usage_limit: {count: 5, per: user, period: 1h}",
     "may only lower the count"),
    ({"effect": "Refund"}, "effect: Pay back", "is `Refund` in code and `Pay back` here; keep one"),
    ({}, "read_only: true", "has `read_only` from its code; drop it here"),
    ({}, "idempotent: true", "has `idempotent` from its code"),
    ({}, "validation: 'off'", "has `validation` from its code"),
    ({}, "handler: 'os:getcwd'", "has `handler` from its code"),
    ({}, "inputSchema: {type: object}", "has `input_schema` from its code"),
    ({}, "remarks: [customer]", "has `remarks` from its code"),
    ({}, "tags: [reviewed]", "has `tags` from its code"),
    ({}, "capabilities: {network: [example.org]}", "has `capabilities` from its code"),
    ({}, "updates: [plan]", "has `updates` from its code"),
    ({}, "attempts: 3", "`attempts` of tool `refund` may be at most `1`"),
    ({}, "cache_permission: 60s", "is not in the code, which asks for each call"),
)  # fmt: skip
def test_manifest_that_loosens_a_tool_names_both_places(
    tmp_path: Path, ours: dict[str, object], theirs: str, words: str
) -> None:
    app = compose(tmp_path, f"tools:\n  refund: {{{theirs}}}", **ours)
    with pytest.raises(ConfigError) as refused:
        app.build()
    assert words in refused.value.message
    assert "signoff.yaml:3: " in refused.value.message
    assert "test_composition.py:" in refused.value.message


@table(
    ("ours", "theirs", "args", "verdict"),
    ("args.amount <= 50.0", "{auto_approve_if: 'args.amount <= 10.0'}", {"customer": "ana", "amount": 30.0}, "ask"),
    ("args.amount <= 50.0", "{auto_approve_if: 'args.amount <= 10.0'}", {"customer": "ana", "amount": 5.0}, "auto"),
    ("args.amount <= 10.0", "{auto_approve_if: 'args.amount <= 50.0'}", {"customer": "ana", "amount": 30.0}, "ask"),
    ("args.amount <= 50.0", "{auto_approve_if: 'true', deny_if: 'args.amount > 20.0'}",
     {"customer": "ana", "amount": 30.0}, "deny"),
    ("args.amount <= 50.0", "true", {"customer": "ana", "amount": 5.0}, "ask"),
)  # fmt: skip
def test_stricter_of_both_policies_decides(
    tmp_path: Path, ours: str, theirs: str, args: dict[str, object], verdict: str
) -> None:
    app = compose(tmp_path, f"tools: {{refund: {{requires_approval: {theirs}}}}}", auto_approve_if=ours)
    assert app.build().policy("refund").judge(args, {}).verdict == verdict


def test_manifest_policy_applies_to_a_tool_without_one(tmp_path: Path) -> None:
    app = compose(tmp_path, "tools: {refund: {requires_approval: true}}")
    assert app.build().policy("refund").needs_person == "always"


@table(
    ("manifest", "words"),
    ("actors: {clerk: {tools: []}}", "`clerk` of `actors` is declared here and at "),
    ("defaults: {model: 'openai:gpt-4'}", "`model` of `defaults` is declared here and at "),
)
def test_setting_declared_in_code_and_manifest_is_refused(tmp_path: Path, manifest: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        compose(tmp_path, manifest).build()
    assert words in refused.value.message


def test_error_in_a_tightened_tool_names_the_manifest_line(tmp_path: Path) -> None:
    app = compose(tmp_path, "tools:\n  refund:\n    requires_approval: {auto_approve_if: 'args.total < 1.0'}")
    with pytest.raises(ConfigError, match=r"signoff\.yaml:4: .*args\.total"):
        app.build()


@table(
    ("ours", "theirs", "groups", "people"),
    ({"approvers": ["role:a"]}, "{approvers: [role:b]}", {("role:b",): 1, ("role:a",): 1}, 2),
    ({"approvers": ["role:a"]}, "{approvers: [role:a, role:b]}", {("role:a", "role:b"): 1, ("role:a",): 1}, 2),
    ({"approvers": ["role:a"]}, "{approvers: [{of: role:b, quorum: 2}]}", {("role:b",): 2, ("role:a",): 1}, 3),
    ({"approvers": ["role:a"]}, "{approvers: [role:b], quorum: 2}", {("role:b",): 2, ("role:a",): 1}, 3),
    ({"approvers": ["role:a"]}, "{level: admin}", {("role:admin",): 1, ("role:a",): 1}, 2),
    ({"requires_approval": {"approvers": [{"of": "role:a"}, {"of": "role:b"}]}}, "{approvers: [role:a]}",
     {("role:a",): 1, ("role:b",): 1}, 2),
    ({"requires_approval": {"approvers": [{"of": "role:a"}, {"of": "role:b"}]}}, "{quorum: 3}",
     {("role:a",): 1, ("role:b",): 1}, 3),
    ({"requires_approval": True}, "{approvers: [role:b]}", {("role:b",): 1, ("role:approvers",): 1}, 2),
    ({"approvers": ["role:a"]}, "true", {}, 1),
)  # fmt: skip
def test_approvers_of_the_manifest_are_asked_in_addition(
    tmp_path: Path, ours: dict[str, object], theirs: str, groups: dict[tuple[str, ...], int], people: int
) -> None:
    app = compose(tmp_path, f"tools: {{refund: {{requires_approval: {theirs}}}}}", **ours)
    terms = app.build().policy("refund").judge({"customer": "ana", "amount": 5.0}, {}).terms
    assert {group.of: group.quorum for group in terms.groups} == groups
    assert terms.quorum == people
    assert {*terms.approvers} == {name for of in groups or [("role:a",)] for name in of}


@table(
    ("amount", "verdict", "groups"),
    (5.0, "auto", [("role:b",), ("role:a",)]),
    (50.0, "ask", [("role:b",), ("role:a",)]),
    (500.0, "ask", [("role:b",), ("role:a",), ("role:c",), ("role:d",)]),
)
def test_terms_of_both_policies_apply(tmp_path: Path, amount: float, verdict: str, groups: list[tuple[str]]) -> None:
    ours, theirs = (
        {
            "auto_approve_if": "args.amount < 10.0",
            "approvers": [f"role:{who}"],
            "terms": [{"when": "args.amount > 100.0", "approvers": [f"role:{more}"]}],
        }
        for who, more in (("a", "d"), ("b", "c"))
    )
    app = compose(tmp_path, f"tools: {{refund: {{requires_approval: {json.dumps(theirs)}}}}}", requires_approval=ours)
    judged = app.build().policy("refund").judge({"customer": "ana", "amount": amount}, {})
    assert (judged.verdict, [group.of for group in judged.terms.groups]) == (verdict, groups)


@table(
    ("ours", "theirs", "words"),
    ({"route_to": "['role:a']"}, "[role:b]", "a policy with `route_to` cannot be compared with another"),
    ({"approvers": ["user:ana"]}, "[user:ana, user:bo], quorum: 2", "both together ask more people than they name"),
)
def test_combined_policies_without_possible_approvers_are_refused(
    tmp_path: Path, ours: dict[str, object], theirs: str, words: str
) -> None:
    manifest = f"tools: {{refund: {{requires_approval: {{approvers: {theirs}}}}}}}"
    with pytest.raises(ConfigError, match=re.escape(words)):
        compose(tmp_path, manifest, requires_approval=ours).build()


def test_manifest_may_narrow_the_approvers_of_the_code(tmp_path: Path) -> None:
    manifest = "tools: {refund: {requires_approval: {approvers: [role:b]}}}"
    assert compose(tmp_path, manifest, approvers=["role:a", "role:b"]).build().policy("refund").rules.approvers == (
        "role:b",
    )
