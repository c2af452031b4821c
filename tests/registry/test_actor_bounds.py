from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from registry_kit import a_call, a_tool, an_actor, pinned
from tables import table

from signoff.contracts.activity_messages import Tally
from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.actor import Actor, Autonomy, EscalationPath, Route
from signoff.registry.approver_coverage import check_approver_coverage
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.catalog_variant import derive
from signoff.registry.cel_context import ContextFields
from signoff.registry.gates.actor_bounds import actor_bounds, autonomy_rules, check_escalation
from signoff.registry.gates.judged_call import JudgedCall
from signoff.registry.gates.pipeline import GateFacts, judge
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.normal_form import normal_form
from signoff.registry.tool import Tool

ANY = {"type": "object", "properties": {"amount": {"type": "number"}}}
READING = Autonomy(unasked_if="'read' in tool.tags", deny_if="tool.name == 'wipe'")
PATH = EscalationPath(approvers=("role:leads",), escalate_after=3600.0, escalate_to=("role:heads",))


def tool(name: str, policy: ApprovalPolicy | bool = False, **fields: Any) -> Tool:
    given: dict[str, Any] = {"input_schema": ANY, "effect": "Do it", "requires_approval": policy} | fields
    return a_tool(name, **given)


def catalog_with(*tools: Tool, **fields: Any) -> Catalog:
    return build_catalog(tools=tools, actors=[an_actor(**fields), an_actor("other")])


def judged(catalog: Catalog, name: str, actor: str = "desk", **args: Any) -> JudgedCall:
    return judge(catalog, pinned(actor), a_call(name), args, Tally())


@pytest.mark.row("P19")
def test_actor_may_act_without_approval_only_within_its_bounds() -> None:
    tools = [tool("look", tags=("read",)), tool("write"), tool("wipe")]
    known = catalog_with(*tools, autonomy=READING)
    assert [judged(known, name).kind for name in ("look", "write")] == ["run", "ask"]
    assert judged(known, "wipe").code == "denied"
    assert [judged(known, name, "other").kind for name in ("look", "write", "wipe")] == ["run"] * 3
    asked = judged(known, "write")
    assert asked.verdict is not None
    assert (asked.verdict.rule.label, asked.verdict.why) == (
        "global:desk.autonomy.unasked_if",
        "`desk` may not do this unasked",
    )


@pytest.mark.row("P19")
@table(
    ("bounds", "args", "kind"),
    ({"unasked_if": "args.amount < 50"}, {"amount": 49}, "run"),
    ({"unasked_if": "args.amount < 50"}, {"amount": 49.5}, "run"),
    ({"unasked_if": "args.amount < 50"}, {"amount": 50}, "ask"),
    ({"unasked_if": "args.amount < 50"}, {}, "ask"),
    ({"unasked_if": "args.typo < 50"}, {"amount": 1}, "ask"),
    ({"unasked_if": "args.amount"}, {"amount": 1}, "ask"),
    ({"unasked_if": "has(args.amount) && args.amount < 50"}, {"amount": 1}, "run"),
    ({"deny_if": "args.amount > 100"}, {"amount": 101}, "denied"),
    ({"deny_if": "args.amount > 100"}, {"amount": 100}, "run"),
    ({"deny_if": "args.amount > 100"}, {}, "denied"),
    ({"deny_if": "args.amount > 100", "unasked_if": "args.amount < 50"}, {"amount": 60}, "ask"),
)
def test_bounds_read_the_arguments_of_a_call(bounds: dict[str, str], args: dict[str, Any], kind: str) -> None:
    known = catalog_with(tool("pay"), autonomy=Autonomy(**bounds))
    found = judged(known, "pay", **args)
    assert ("denied" if found.code == "denied" else found.kind) == kind
    assert judged(known, "pay", "other", **args).kind == "run"
    assert [each.name for each in known.tool_view(pinned("desk")).visible()] == ["pay"]
    rule = f"desk.autonomy.{'deny_if' if kind == 'denied' else 'unasked_if'}"
    if kind != "run":
        assert found.verdict is not None
        assert found.verdict.rule.label == f"global:{rule}"
        assert found.verdict.verdict == ("deny" if kind == "denied" else "ask")
        assert bounds[rule.rpartition(".")[2]] in found.verdict.rule_text
        assert len(found.verdict.reasons) == 1


def test_bounds_over_time_are_judged_at_each_instant() -> None:
    known = catalog_with(tool("pay"), autonomy=Autonomy(deny_if="ctx.now.hour >= 18 && args.amount > 1"))
    for hour, code in ((12, "ok"), (20, "denied"), (13, "ok")):
        facts = GateFacts(at=datetime(2026, 3, 2, hour, tzinfo=UTC))
        assert judge(known, pinned("desk"), a_call("pay"), {"amount": 2}, Tally(), known=facts).code == code, hour


@table(("read_rest", "but"), (True, "tool.name != 'read_rest' && "), (False, ""))
def test_rules_of_an_actor_wrap_its_expression_in_brackets(read_rest: bool, but: str) -> None:
    bounds = Autonomy(unasked_if="true // always", deny_if="args.amount > 1")
    mine = f"actor.name == 'desk' && {but}"
    rules = autonomy_rules([an_actor(autonomy=bounds, read_rest=read_rest)], ContextFields({}))
    assert [each.rule for each in rules] == [f"{mine}(args.amount > 1)", f"{mine}!(true // always\n)"]


@table(
    ("fields", "field", "value"),
    ({"autonomy": Autonomy()}, "autonomy", ""),
    ({"autonomy": Autonomy(unasked_if="arg.amount < 5")}, "autonomy.unasked_if", "arg.amount < 5"),
    ({"escalation": EscalationPath()}, "escalation", ""),
    ({"escalation": EscalationPath(approvers=("leads",))}, "escalation.approvers.0", "leads"),
)
def test_error_in_bounds_names_field_and_value(fields: dict[str, Any], field: str, value: str) -> None:
    def check(actor: Actor) -> None:
        check_escalation(actor)
        autonomy_rules([actor], ContextFields({}))

    with pytest.raises(ConfigError) as caught:
        check(an_actor(**fields))
    assert caught.value.context == {"actor": "desk", "field": field, "value": value}


def test_bounds_of_an_actor_are_listed_by_key() -> None:
    escalation = EscalationPath(approvers=("role:leads",))
    assert actor_bounds(an_actor(autonomy=Autonomy(deny_if="true"))) == {"autonomy.deny_if": "true"}
    assert actor_bounds(an_actor(escalation=escalation)) == {"escalation.approvers": ("role:leads",)}


def test_bounds_over_arguments_never_loosen_and_change_the_hash() -> None:
    free = Autonomy(unasked_if="args.amount < 50 || true", deny_if="args.amount < 0")
    asks = catalog_with(tool("pay", True), autonomy=free)
    asked = judged(asks, "pay", amount=1)
    assert (asked.kind, asked.verdict and asked.verdict.rule.label) == ("ask", "requires_approval")
    policy = ApprovalPolicy(deny_if="args.amount > 0.0", auto_approve_if="true")
    denies = catalog_with(tool("pay", policy, input_schema=ANY | {"required": ["amount"]}), autonomy=free)
    assert judged(denies, "pay", amount=1).code == "denied"
    plain, bound = catalog_with(tool("pay")), catalog_with(tool("pay"), autonomy=free)
    assert plain.hash != bound.hash != catalog_with(tool("pay"), autonomy=Autonomy(deny_if="args.amount < 1")).hash
    assert (plain.needs_nobody("pay"), bound.needs_nobody("pay")) == (True, False)
    with pytest.raises(ConfigError, match="requires approval, but there are no default approvers"):
        build_catalog(tools=[tool("pay")], actors=[an_actor(autonomy=free)], default_approvers=())


@table("near", "args.amount > 0", "tool.name == 'pay' && args.amount > 0")
def test_shadowing_tool_does_not_escape_bounds_over_arguments(near: str) -> None:
    route = Route(name="r", tools=(tool("pay"),))
    known = catalog_with(tool("pay"), routes=(route,), shadowing="allow", autonomy=Autonomy(deny_if=near))
    ctx = pinned("desk", route="r")
    assert judge(known, ctx, a_call("pay"), {"amount": 1}, Tally()).code == "denied"
    assert judge(known, ctx, a_call("pay"), {"amount": 0}, Tally()).kind == "run"


@pytest.mark.row("P19")
@table("bounds", "true", "actor.name == 'desk'", "false", "ctx.user.tier == 'gold'")
@table(
    ("policy", "kind"),
    (True, "ask"),
    (ApprovalPolicy(auto_approve_if="args.amount < 50.0"), "ask"),
    (ApprovalPolicy(deny_if="args.amount > 50.0", auto_approve_if="true"), "settled"),
)
def test_bounds_never_loosen_a_policy(bounds: str, policy: ApprovalPolicy | bool, kind: str) -> None:
    pay = tool("pay", policy, input_schema=ANY | {"required": ["amount"]})
    known = catalog_with(pay, autonomy=Autonomy(unasked_if=bounds))
    assert judged(known, "pay", amount=60).kind == kind


@pytest.mark.row("P19")
def test_bounds_that_cannot_be_evaluated_ask() -> None:
    fields = {"context": {"project": {"type": "string"}}}
    actor = an_actor(autonomy=Autonomy(unasked_if="ctx.project == 'x'"))
    known = build_catalog(tools=[tool("write")], actors=[actor], **fields)
    assert judged(known, "write").kind == "ask"
    assert judge(known, pinned(extra={"project": "x"}), a_call("write"), {}, Tally()).kind == "run"


@pytest.mark.row("P19")
def test_actor_escalation_applies_unless_the_policy_names_approvers() -> None:
    named = ApprovalPolicy(approvers=("role:finance",))
    own = ApprovalPolicy(escalate_after=60.0, escalate_to=("role:duty",), quorum=2)
    strict = ApprovalPolicy(terms=[{"when": "true", "quorum": 3}])
    tools = [tool("plain", True), tool("named", named), tool("own", own), tool("free"), tool("strict", strict)]
    known = catalog_with(*tools, autonomy=READING, escalation=PATH)

    def terms(name: str, actor: str = "desk") -> tuple[Any, ...]:
        verdict = judged(known, name, actor).verdict
        assert verdict is not None
        found = known.terms(name, verdict)
        return found.approvers, found.quorum, found.escalate_after, found.escalate_to

    assert terms("plain") == (("role:leads",), 1, 3600.0, ("role:heads",))
    assert terms("free") == terms("plain")
    assert terms("strict") == (("role:leads",), 3, 3600.0, ("role:heads",))
    assert terms("own") == (("role:leads",), 2, 60.0, ("role:duty",))
    assert terms("named") == (("role:finance",), 1, None, ())
    assert terms("plain", "other") == (("role:approvers",), 1, None, ())


@pytest.mark.row("P19")
def test_bounds_are_kept_in_variants_and_in_the_normal_form() -> None:
    known = catalog_with(tool("write"), autonomy=READING, escalation=PATH)
    assert derive(known).hash == known.hash
    assert normal_form(known)["policies"] == {}
    assert normal_form(known)["actors"]["desk"]["autonomy"] is not None
    others = [
        catalog_with(tool("write"), autonomy=READING),
        catalog_with(tool("write"), escalation=PATH),
        catalog_with(tool("write"), autonomy=Autonomy(unasked_if="true"), escalation=PATH),
    ]
    assert len({known.hash, *(each.hash for each in others)}) == 4


@pytest.mark.row("P19")
@table(
    ("lines", "line", "words"),
    ("autonomy: {unasked_if: \"'x' in tool.tgs\"}\n", 2, "`autonomy.unasked_if`"),
    ("autonomy: {deny_if: 'true) || (true'}\n", 2, "`autonomy.deny_if`"),
    ("autonomy: {unasked_if: arg.amount < 5}\n", 2, "nothing is called `arg.amount`"),
    ("autonomy: {unasked_if: tool.name}\n", 2, "must be true or false"),
    ("autonomy: {}\n", 2, "write `unasked_if` or `deny_if`"),
    ("autonomy: {unasked: 'true'}\n", 2, "unknown key `unasked`"),
    ("escalation: {}\n", 2, "write its `approvers`"),
    ("escalation: {approvers: [leads]}\n", 2, "leads"),
    ("escalation: {approvers: ['role:a'], escalate_after: 1h}\n", 2, "name them in `escalate_to`"),
    ("escalation: {escalate_to: ['role:a']}\n", 2, "add `escalate_after`"),
)
def test_error_in_bounds_names_the_actor_file_and_remedy(tmp_path: Path, lines: str, line: int, words: str) -> None:
    (tmp_path / "actors").mkdir()
    (tmp_path / "signoff.yaml").write_text("version: 1\ndefaults: {model: 'scripted:x:y'}\n")
    (tmp_path / "actors" / "desk.yaml").write_text(f"tools: []\n{lines}")
    with pytest.raises(ConfigError) as caught:
        load_manifest(tmp_path)
    assert f"actors/desk.yaml:{line}: " in caught.value.message
    assert words in caught.value.message


@pytest.mark.row("P19")
def test_actor_file_holds_autonomy_and_escalation(tmp_path: Path) -> None:
    (tmp_path / "actors").mkdir()
    (tmp_path / "signoff.yaml").write_text("version: 1\ndefaults: {model: 'scripted:x:y'}\n")
    (tmp_path / "actors" / "desk.yaml").write_text(
        "tools: []\nautonomy: {unasked_if: \"'read' in tool.tags\", deny_if: \"tool.name == 'wipe'\"}\n"
        "escalation: {approvers: ['role:leads'], escalate_after: 1h, escalate_to: ['role:heads']}\n"
    )
    found = load_manifest(tmp_path).actor("desk")
    assert (found.autonomy, found.escalation) == (READING, PATH)


@pytest.mark.row("P19")
def test_escalation_to_an_unfilled_role_is_refused_at_start() -> None:
    known = catalog_with(tool("plain", True), escalation=PATH)
    people = [Person(id="ana", roles=("approvers", "leads"))]
    with pytest.raises(ConfigError, match="actor `desk`: `escalation` names `role:heads`, which no active person is"):
        check_approver_coverage(known, FixedDirectory(people))
    check_approver_coverage(known, FixedDirectory([*people, Person(id="bo", roles=("heads",))]))
