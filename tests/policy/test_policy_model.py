import inspect
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from tables import table

from signoff.contracts.errors import ConfigError
from signoff.formats.durations import seconds
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule, RequiresApproval, ShownArguments, Term


def test_policy_defaults_match_the_documentation() -> None:
    policy = ApprovalPolicy()
    assert (policy.level, policy.approvers, policy.quorum, policy.veto) == ("user", (), 1, True)
    assert (policy.timeout, policy.grant_ttl) == (86_400.0, 86_400.0)
    assert (policy.allow_self_approval, policy.edit, policy.accept_unsigned) == (False, None, False)
    assert (policy.min_assurance, policy.confirm, policy.audit) == ("channel", "", "required")
    assert (policy.show.only, policy.show.secret) == (None, ())


@pytest.mark.row("B69")
def test_both_spellings_of_a_field_are_equal() -> None:
    camel = ApprovalPolicy.model_validate({"autoApproveIf": "true", "grantTtl": "1h", "minAssurance": "mfa"})
    snake = ApprovalPolicy(auto_approve_if="true", grant_ttl=3_600, min_assurance="mfa")
    both = ApprovalPolicy.model_validate(
        {"autoApproveIf": "true", "auto_approve_if": "true", "grant_ttl": 3_600, "min_assurance": "mfa"}
    )
    assert camel == snake == both


def test_a_signature_has_the_spelling_of_python() -> None:
    for model in (ApprovalPolicy, Term, ShownArguments):
        assert [*inspect.signature(model).parameters] == [*model.model_fields]


@table(
    ("data", "says", "field"),
    ({"autoApproveIf": True}, "valid string", "auto_approve_if"),
    ({"denyIf": ""}, "at least 1 character", "deny_if"),
    ({"timeout": 0}, "more than 0", "timeout"),
    ({"timeout": True}, "as a number", "timeout"),
    ({"timeout": "400d"}, "at most 366 days", "timeout"),
    ({"approvers": ["role:a b"]}, "write `role:<role>`", "approvers.0"),
    ({"approvers": "role:a"}, "valid tuple", "approvers"),
    ({"quorum": True}, "valid integer", "quorum"),
    ({"veto": "yes"}, "valid boolean", "veto"),
    ({"level": "boss"}, "'user' or 'admin'", "level"),
    ({"minAssurance": "strong"}, "'none', 'link'", "min_assurance"),
    ({"confirm": "click"}, "type", "confirm"),
    ({"show": {"secrets": []}}, "did you mean `secret`", "secrets"),
)
def test_invalid_field_is_refused_with_its_remedy(data: dict[str, Any], says: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ApprovalPolicy.model_validate(data)
    assert says in caught.value.message
    assert caught.value.context["field"] == field


def test_handler_needs_an_import_reference() -> None:
    assert ApprovalPolicy.model_validate({"handler": "desk.rules:judge"}).handler == "desk.rules:judge"
    for wrong in ("desk", "desk:", ":judge", "desk:judge()", "desk judge:x", "desk:a:b", "desk:judge\n"):
        with pytest.raises(ConfigError, match="is not `module:function`; name the function"):
            ApprovalPolicy.model_validate({"handler": wrong})


def test_policy_may_remind_escalate_and_extend() -> None:
    plain = ApprovalPolicy()
    assert (plain.remind_after, plain.escalate_after, plain.escalate_to, plain.on_timeout) == (None, None, (), "deny")
    assert ApprovalPolicy.model_validate({"remindAfter": "1h"}).remind_after == 3_600.0
    put_off = ApprovalPolicy.model_validate({"onTimeout": "escalate", "escalateTo": ["role:cfo"]})
    assert (put_off.on_timeout, put_off.escalate_to, put_off.escalate_after) == ("escalate", ("role:cfo",), None)
    given = {"remind_after": "4h", "escalate_after": "8h", "escalate_to": ["role:cfo", "user:ana"], "timeout": "1d"}
    every = ApprovalPolicy.model_validate(given | {"on_timeout": "escalate"})
    assert (every.remind_after, every.escalate_after, every.timeout) == (14_400.0, 28_800.0, 86_400.0)


def test_approval_on_timeout_is_refused() -> None:
    with pytest.raises(ConfigError, match="never allowed"):
        ApprovalPolicy.model_validate({"onTimeout": "approve"})
    assert ApprovalPolicy.model_validate({"onTimeout": "deny", "handler": None}) == ApprovalPolicy()


@table(
    ("value", "expected"),
    ("24h", 86_400.0),
    ("15m", 900.0),
    ("1d2h", 93_600.0),
    ("90s", 90.0),
    (" 1h30m ", 5_400.0),
    (0.5, 0.5),
    (7, 7.0),
)
def test_durations_are_seconds_or_text(value: Any, expected: float) -> None:
    assert seconds(value) == expected


@table("value", "", "h", "1", "1h1d", "-1h", "1.5h", "1 h", "٣h", None, [], float("nan"), float("inf"), -1)
def test_invalid_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        seconds(value)


def test_global_rule_needs_a_name_an_expression_and_an_effect() -> None:
    assert GlobalRule(name="a", rule="true", effect="hide").reason == ""
    for data in (
        {"name": "a", "rule": "true"},
        {"name": "a", "rule": "true", "effect": "allow"},
        {"name": "", "rule": "true", "effect": "hide"},
    ):
        with pytest.raises(ConfigError):
            GlobalRule.model_validate(data)


def test_policy_in_a_union_leaves_other_members_valid() -> None:
    class Holder(BaseModel):
        requires_approval: RequiresApproval

    assert Holder.model_validate({"requires_approval": True}).requires_approval is True
    assert Holder.model_validate({"requires_approval": {"quorum": 2}}).requires_approval == ApprovalPolicy(quorum=2)
    with pytest.raises(ConfigError):
        Holder.model_validate({"requires_approval": {"quorum": 0}})
    with pytest.raises(ValidationError):
        Holder.model_validate({"requires_approval": "always"})


@table(
    ("edit", "read_only", "writes"),
    ("off", "off", "off"),
    (False, "off", "off"),
    (None, "approve", "off"),
    ("approve", "approve", "approve"),
)
def test_edits_are_on_by_default_only_for_read_only_tools(edit: Any, read_only: str, writes: str) -> None:
    policy = ApprovalPolicy(edit=edit)
    assert (policy.edit_mode(read_only=True), policy.edit_mode(read_only=False)) == (read_only, writes)
    with pytest.raises(ConfigError, match="edit"):
        ApprovalPolicy.model_validate({"edit": True})
