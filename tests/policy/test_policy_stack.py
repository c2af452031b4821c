from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import table

from signoff.contracts.approval import ApproverGroup
from signoff.contracts.canonical_json import sha256_hex
from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval, ShownArguments, TermRule
from signoff.policy.compiled_policy import CompiledPolicy, compile_policy
from signoff.policy.facts import ToolFacts
from signoff.policy.policy_stack import UnderlyingPolicy, incomparable, stack_policies

SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
TOOL = ToolFacts("pay", "generalist", "routed", ())
DEFAULT = ("role:approvers",)
SMALL = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


def compiled(given: RequiresApproval) -> CompiledPolicy:
    return compile_policy(given, tool=TOOL, input_schema=SCHEMA)


def over(own: RequiresApproval, *below: RequiresApproval, fits: bool = True) -> CompiledPolicy:
    return stack_policies(
        compiled(own), [UnderlyingPolicy(compiled(each), lambda args: fits) for each in below], DEFAULT
    )


def policy_of(found: CompiledPolicy) -> ApprovalPolicy:
    assert found.policy is not None
    return found.policy


@table(
    ("own", "below", "amount", "verdict"),
    (False, True, 1.0, "ask"),
    (False, SMALL, 1.0, "auto"),
    (False, SMALL, 60.0, "ask"),
    (SMALL, False, 1.0, "auto"),
    (ApprovalPolicy(auto_approve_if="true"), SMALL, 60.0, "ask"),
    (True, ApprovalPolicy(deny_if="args.amount > 10.0"), 60.0, "deny"),
    (ApprovalPolicy(deny_if="args.amount > 10.0"), True, 60.0, "deny"),
    (False, False, 60.0, "auto"),
)
@pytest.mark.row("X03")
def test_strictest_verdict_of_a_stack_decides(
    own: RequiresApproval, below: RequiresApproval, amount: float, verdict: str
) -> None:
    found = over(own, below)
    judged = found.judge({"amount": amount}, {})
    assert judged.verdict == verdict
    assert judged.policy_hash == found.hash


@table(("tags", "verdict"), ((), "deny"), (("trusted",), "auto"))
@table("upper", True, False)
def test_every_policy_of_a_stack_sees_the_same_actor(upper: bool, tags: tuple[str, ...], verdict: str) -> None:
    about = ApprovalPolicy(deny_if="!('trusted' in actor.tags)", auto_approve_if="true")
    found = over(about, SMALL) if upper else over(SMALL, about)
    assert found.judge({"amount": 1.0}, {}, {"name": "desk", "tags": list(tags)}).verdict == verdict


def test_rule_of_the_other_tool_cannot_approve_unfit_arguments() -> None:
    assert over(False, SMALL, fits=True).judge({"amount": 1.0}, {}).verdict == "auto"
    judged = over(False, SMALL, fits=False).judge({"amount": 1.0}, {})
    assert (judged.verdict, judged.terms.approvers) == ("ask", DEFAULT)
    assert "would not accept these arguments" in judged.why


def test_policy_that_never_asks_adds_nothing_to_a_stack() -> None:
    own = compiled(SMALL)
    assert stack_policies(own, [UnderlyingPolicy(compiled(False), lambda args: True)], DEFAULT) is own


@table("near", True, False)
def test_stacked_policies_require_a_reason_if_one_of_them_does(near: bool) -> None:
    found = over(ApprovalPolicy(require_reason=near), ApprovalPolicy(require_reason=not near))
    assert policy_of(found).require_reason
    assert not policy_of(over(ApprovalPolicy(), ApprovalPolicy())).require_reason


def test_stacked_fields_are_the_strictest() -> None:
    near = ApprovalPolicy(approvers=("role:a",), timeout=60, allow_remember=True, min_assurance="mfa", remind_after=20)
    far = ApprovalPolicy(approvers=("role:b", "role:a"), quorum=2, veto=True, edit="off", timeout=30, confirm="type")
    found = over(near, far)
    policy = policy_of(found)
    assert (policy.approvers, policy.quorum, policy.timeout) == (("role:a",), 2, 30)
    assert (policy.allow_remember, policy.edit, policy.confirm) == (False, "off", "type")
    assert (policy.min_assurance, policy.remind_after, found.needs_person) == ("mfa", 20, "always")
    assert found.judge({"amount": 1.0}, {}).terms.approvers == ("role:a",)


@table(
    ("near", "far", "strictest"),
    ({"only": ("a",)}, {"only": ("b", "a")}, {"only": ("a", "b")}),
    ({"only": ("a",)}, {}, {}),
    ({}, {"only": ("a",)}, {}),
    ({"only": ()}, {"only": ("a",)}, {"only": ("a",)}),
    ({"secret": ("a",)}, {"secret": ("b", "a")}, {"secret": ("a", "b")}),
    ({"only": ("a",)}, {"only": ("a",), "secret": ("a",)}, {"only": ("a",), "secret": ("a",)}),
)
@pytest.mark.row("X03")
def test_stacked_card_shows_what_either_shows_and_masks_what_either_masks(
    near: dict[str, Any], far: dict[str, Any], strictest: dict[str, Any]
) -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    own, below = (
        compile_policy(ApprovalPolicy(show=ShownArguments(**each)), tool=TOOL, input_schema=shape)
        for each in (near, far)
    )
    assert policy_of(stack_policies(own, [UnderlyingPolicy(below, lambda args: True)], DEFAULT)).show == ShownArguments(
        **strictest
    )


NAMED: dict[str, Any] = {"approvers": ("role:a",)}
WIDE: dict[str, Any] = {"escalate_to": ("role:everybody",)}


@table(
    ("field", "one", "other", "strictest"),
    ("level", {}, {}, "user"),
    ("level", {"level": "admin"}, {}, "admin"),
    ("quorum", {"quorum": 2}, {"quorum": 3}, 3),
    ("veto", {"veto": False}, {"veto": False}, False),
    ("veto", {"veto": True}, {"veto": False}, True),
    ("allow_self_approval", {"allow_self_approval": True}, {"allow_self_approval": True}, True),
    ("allow_self_approval", {"allow_self_approval": True}, {}, False),
    ("timeout", {"timeout": 30}, {"timeout": 60}, 30),
    ("grant_ttl", {"grant_ttl": 30}, {"grant_ttl": 60}, 30),
    ("edit", {}, {}, None),
    ("edit", {"edit": "approve"}, {}, "off"),
    ("min_assurance", {"min_assurance": "link"}, {"min_assurance": "none"}, "link"),
    ("min_assurance", {"min_assurance": "link"}, {"min_assurance": "channel"}, "channel"),
    ("accept_unsigned", {"accept_unsigned": True}, {"accept_unsigned": True}, True),
    ("accept_unsigned", {"accept_unsigned": True}, {}, False),
    ("confirm", {}, {}, ""),
    ("confirm", {"confirm": "type"}, {}, "type"),
    ("allow_remember", {"allow_remember": True}, {"allow_remember": True}, True),
    ("allow_remember", {"allow_remember": True}, {}, False),
    ("while_waiting", {"while_waiting": "continue"}, {"while_waiting": "continue"}, "continue"),
    ("while_waiting", {"while_waiting": "continue"}, {}, "wait"),
    ("audit", {"audit": "best_effort"}, {"audit": "best_effort"}, "best_effort"),
    ("audit", {"audit": "best_effort"}, {}, "required"),
)
def test_each_stacked_field_is_the_strictest_in_either_order(
    field: str, one: dict[str, Any], other: dict[str, Any], strictest: Any
) -> None:
    for near, far in ((one, other), (other, one)):
        found = policy_of(over(ApprovalPolicy(**NAMED | near), ApprovalPolicy(**NAMED | far)))
        assert getattr(found, field) == strictest
        assert ApprovalPolicy.model_validate(dict(found)) == found


@table(("after", "kept"), (20, 20), (29, 29), (30, None), (40, None))
def test_stacked_reminder_must_come_before_the_timeout(after: float, kept: float | None) -> None:
    near = ApprovalPolicy(timeout=60, remind_after=after)
    assert policy_of(over(near, ApprovalPolicy(timeout=30))).remind_after == kept
    assert policy_of(over(ApprovalPolicy(timeout=60), near)).remind_after is None


def test_stack_needs_a_person_if_any_policy_does() -> None:
    for own, below, needs in ((False, SMALL, "maybe"), (SMALL, True, "always"), (True, SMALL, "always")):
        assert over(own, below).needs_person == over(False, own, below).needs_person == needs


def test_stack_verdict_is_the_nearest_and_holds_all_engine_answers() -> None:
    args = {"amount": 1.0}
    rules = [ApprovalPolicy(auto_approve_if=f"args.amount < {limit}") for limit in ("50.0", "60.0")]
    alone = [compiled(each).judge(args, {}) for each in rules]
    judged = over(*rules).judge(args, {})
    assert (judged.verdict, judged.rule_text, judged.why) == ("auto", alone[0].rule_text, alone[0].why)
    assert alone[0].rule_text != alone[1].rule_text
    assert judged.engines == (*alone[0].engines, *alone[1].engines) != ()


def test_hash_of_a_stack_covers_all_policies_in_order() -> None:
    hashes = [compiled(each).hash for each in (SMALL, True)]
    assert over(SMALL, True).hash == sha256_hex({"stacked": hashes})
    assert len({over(*each).hash for each in ((SMALL, True), (True, SMALL), (SMALL, SMALL))}) == 3


def test_escalation_is_kept_only_if_all_policies_agree() -> None:
    wide = ApprovalPolicy(escalate_after=60, **WIDE)
    assert policy_of(over(wide, wide)).escalate_to == ("role:everybody",)
    assert policy_of(over(False, wide)).escalate_to == ("role:everybody",)
    late = ApprovalPolicy(on_timeout="escalate", **WIDE)
    for each in (wide, late):
        found = policy_of(over(each, True))
        assert (found.escalate_after, found.escalate_to, found.on_timeout) == (None, (), "deny")
        assert ApprovalPolicy.model_validate(dict(found)) == found


DYNAMIC = "a policy with `{}` cannot be compared with another; name `approvers` and write rules"
STRANGE = "`{}` may not decide there; those who may: {}"
B = ApprovalPolicy(approvers=("role:b",))
TERM = TermRule(when="args.amount > 10.0", quorum=2)
IN_GROUPS = ApprovalPolicy.model_validate({"approvers": [{"of": ["role:a"], "quorum": 1}, {"of": ["role:b"]}]})
A_AND_C = ApprovalPolicy(approvers=("role:a", "role:c"))


@table(
    ("own", "below", "why"),
    (True, [False], ""),
    (True, [True], ""),
    (ApprovalPolicy(handler="a:b"), [False], ""),
    (ApprovalPolicy(handler="a:b"), [True], DYNAMIC.format("handler")),
    (False, [ApprovalPolicy(route_to="['role:a']")], DYNAMIC.format("route_to")),
    (False, [ApprovalPolicy(terms=(TERM,))], DYNAMIC.format("terms")),
    (True, [IN_GROUPS], DYNAMIC.replace("`{}`", "groups in `approvers`")),
    (B, [A_AND_C], STRANGE.format("role:b", "`role:a`, `role:c`")),
    (B, [A_AND_C, B], STRANGE.format("role:b", "no approver may decide for all of them")),
    (False, [A_AND_C, B], "approvers differ: no approver may decide for all of them"),
    (ApprovalPolicy(level="admin"), [True], STRANGE.format("role:admin", "`role:approvers`")),
)
def test_incomparable_policies_are_reported(own: RequiresApproval, below: list[RequiresApproval], why: str) -> None:
    assert incomparable(compiled(own), [compiled(each) for each in below], DEFAULT) == why


@table(
    ("own", "below", "approvers"),
    (B, A_AND_C, (ApproverGroup(of=("role:b",)), ApproverGroup(of=("role:a", "role:c")))),
    (ApprovalPolicy(approvers=("role:c",)), A_AND_C, ("role:c",)),
    (True, IN_GROUPS, (ApproverGroup(of=("role:a",)), ApproverGroup(of=("role:b",)))),
    (B, SMALL, (ApproverGroup(of=("role:b",)), ApproverGroup(of=DEFAULT))),
)
def test_policies_held_together_ask_the_approvers_of_each(
    own: RequiresApproval, below: RequiresApproval, approvers: tuple[Any, ...]
) -> None:
    first, second = compiled(own), compiled(below)
    assert incomparable(first, [second], DEFAULT, together=True) == ""
    found = policy_of(stack_policies(first, [UnderlyingPolicy(second, lambda args: True)], DEFAULT, together=True))
    assert found.approvers == approvers
    assert ApprovalPolicy.model_validate(dict(found)) == found


RULES = st.sampled_from([None, "true", "false", "args.amount < 50.0", "args.amount > 10.0"])
POLICIES = st.booleans() | st.builds(ApprovalPolicy, auto_approve_if=RULES, deny_if=RULES, require_approval_if=RULES)
ORDER = ("auto", "ask", "deny")


@pytest.mark.row("X03")
@given(own=POLICIES, below=st.lists(POLICIES, max_size=3), amount=st.sampled_from([1.0, 20.0, 70.0]))
def test_stack_is_never_looser_than_any_of_its_policies(own: Any, below: list[Any], amount: float) -> None:
    judged = over(own, *below).judge({"amount": amount}, {}).verdict
    each = [compiled(policy).judge({"amount": amount}, {}).verdict for policy in (own, *below)]
    assert judged == max(each, key=ORDER.index)
