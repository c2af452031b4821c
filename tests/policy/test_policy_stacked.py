"""A policy over others asks for whatever any of them asks for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signoff.policy.compiled import CompiledPolicy, compile_policy
from signoff.policy.facts import ToolFacts
from signoff.policy.model import ApprovalPolicy, RequiresApproval
from signoff.policy.stacked import Below, incomparable, stacked

SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}
TOOL = ToolFacts("pay", "generalist", "routed", ())
DEFAULT = ("role:approvers",)
SMALL = ApprovalPolicy(auto_approve_if="args.amount < 50.0")


def compiled(given: RequiresApproval) -> CompiledPolicy:
    """A policy of the one tool."""
    return compile_policy(given, tool=TOOL, input_schema=SCHEMA)


def over(own: RequiresApproval, *below: RequiresApproval, fits: bool = True) -> CompiledPolicy:
    """`own` over `below`."""
    return stacked(compiled(own), [Below(compiled(each), lambda args: fits) for each in below], DEFAULT)


def policy_of(found: CompiledPolicy) -> ApprovalPolicy:
    """The policy that has to be there."""
    assert found.policy is not None
    return found.policy


@pytest.mark.parametrize(
    ("own", "below", "amount", "verdict"),
    [
        (False, True, 1.0, "ask"),
        (False, SMALL, 1.0, "auto"),
        (False, SMALL, 60.0, "ask"),
        (SMALL, False, 1.0, "auto"),
        (ApprovalPolicy(auto_approve_if="true"), SMALL, 60.0, "ask"),
        (True, ApprovalPolicy(deny_if="args.amount > 10.0"), 60.0, "deny"),
        (ApprovalPolicy(deny_if="args.amount > 10.0"), True, 60.0, "deny"),
        (False, False, 60.0, "auto"),
    ],
)
@pytest.mark.row("X03")
def test_the_strictest_verdict_counts(
    own: RequiresApproval, below: RequiresApproval, amount: float, verdict: str
) -> None:
    """Deny before ask before auto, whosever it is."""
    found = over(own, below)
    said = found.judge({"amount": amount}, {})
    assert said.verdict == verdict
    assert said.policy_hash == found.hash


def test_arguments_that_the_other_tool_would_not_take_are_not_approved_by_its_rule() -> None:
    """Its rule was written for its own arguments."""
    assert over(False, SMALL, fits=True).judge({"amount": 1.0}, {}).verdict == "auto"
    said = over(False, SMALL, fits=False).judge({"amount": 1.0}, {})
    assert (said.verdict, said.approvers) == ("ask", DEFAULT)
    assert "would not take these arguments" in said.why


def test_nothing_is_added_by_what_never_asks() -> None:
    """Then the policy is the same one."""
    own = compiled(SMALL)
    assert stacked(own, [Below(compiled(False), lambda args: True)], DEFAULT) is own


def test_each_field_is_the_strictest() -> None:
    """Of who may answer, how many, how fast, and what they may do."""
    near = ApprovalPolicy(approvers=("role:a",), timeout=60, allow_remember=True, min_assurance="mfa", remind_after=20)
    far = ApprovalPolicy(
        approvers=("role:b", "role:a"), quorum=2, veto=True, allow_edit=False, timeout=30, confirm="type"
    )
    found = over(near, far)
    policy = policy_of(found)
    assert (policy.approvers, policy.quorum, policy.timeout) == (("role:a",), 2, 30)
    assert (policy.allow_remember, policy.allow_edit, policy.confirm) == (False, False, "type")
    assert (policy.min_assurance, policy.remind_after, found.needs_person) == ("mfa", 20, "always")
    assert found.judge({"amount": 1.0}, {}).approvers == ("role:a",)


def test_escalation_is_kept_only_where_all_agree_on_it() -> None:
    """Those to whom it escalates may decide as well, so they are not added to those of the other."""
    wide = ApprovalPolicy(escalate_after=60, escalate_to=("role:everybody",))
    assert policy_of(over(wide, True)).escalate_to == ()
    assert policy_of(over(wide, wide)).escalate_to == ("role:everybody",)
    assert policy_of(over(False, wide)).escalate_to == ("role:everybody",)


@pytest.mark.parametrize(
    ("own", "below", "words"),
    [
        (True, [False], ""),
        (True, [True], ""),
        (ApprovalPolicy(handler="a:b"), [False], ""),
        (ApprovalPolicy(handler="a:b"), [True], "`handler`"),
        (False, [ApprovalPolicy(route_to="['role:a']")], "`route_to`"),
        (ApprovalPolicy(approvers=("role:b",)), [ApprovalPolicy(approvers=("role:a",))], "`role:b` may not decide"),
        (False, [ApprovalPolicy(approvers=("role:a",)), ApprovalPolicy(approvers=("role:b",))], "approvers differ"),
        (ApprovalPolicy(level="admin"), [True], "`role:admin` may not decide there; those who may: `role:approvers`"),
    ],
)
def test_what_cannot_be_compared_is_said(own: RequiresApproval, below: list[RequiresApproval], words: str) -> None:
    """Nobody is asked where it would not be known whom."""
    found = incomparable(compiled(own), [compiled(each) for each in below], DEFAULT)
    assert (words in found) if words else found == ""


RULES = st.sampled_from([None, "true", "false", "args.amount < 50.0", "args.amount > 10.0"])
POLICIES = st.booleans() | st.builds(ApprovalPolicy, auto_approve_if=RULES, deny_if=RULES, require_approval_if=RULES)
ORDER = ("auto", "ask", "deny")


@pytest.mark.row("X03")
@given(own=POLICIES, below=st.lists(POLICIES, max_size=3), amount=st.sampled_from([1.0, 20.0, 70.0]))
def test_no_stack_is_looser_than_any_of_its_policies(own: Any, below: list[Any], amount: float) -> None:
    """For every policy under it, whatever the arguments."""
    said = over(own, *below).judge({"amount": amount}, {}).verdict
    each = [compiled(policy).judge({"amount": amount}, {}).verdict for policy in (own, *below)]
    assert said == max(each, key=ORDER.index)
