from typing import Any

import pytest
from tables import table

from signoff.contracts.approval import ApproverGroup
from signoff.contracts.errors import ConfigError
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.policy.terms import terms_of

FINANCE, LEGAL = ApproverGroup(of=("role:finance",)), ApproverGroup(of=("role:legal", "user:ana"), quorum=2)


def policy(**fields: Any) -> ApprovalPolicy:
    return ApprovalPolicy.model_validate(fields)


def test_group_names_its_approvers_and_quorum() -> None:
    read = policy(approvers=[{"of": "role:finance"}, {"of": ["role:legal", "user:ana", "role:legal"], "quorum": 2}])
    assert read.groups == (FINANCE, LEGAL)
    assert read.named_approvers == ("role:finance", "role:legal", "user:ana")
    terms = terms_of(read, read.named_approvers)
    assert (terms.groups, terms.quorum) == ((FINANCE, LEGAL), 3)


def test_plain_approver_list_has_no_groups() -> None:
    read = policy(approvers=["role:finance", "role:legal"], quorum=2)
    assert (read.groups, read.people_needed) == ((), 2)


def test_route_to_other_approvers_drops_the_groups() -> None:
    terms = terms_of(policy(approvers=[{"of": "role:finance"}, {"of": "role:legal"}]), ("role:admin",))
    assert (terms.approvers, terms.groups, terms.quorum) == (("role:admin",), (), 2)


@table(
    ("fields", "field", "words"),
    ({"approvers": [{"of": "finance"}]}, "approvers.0", "is not an approver"),
    ({"approvers": [{"of": []}]}, "approvers.0", "in `of`"),
    ({"approvers": [{"quorum": 2}]}, "approvers.0", "in `of`"),
    ({"approvers": [{"of": "role:a", "quorum": 0}]}, "approvers.0", "1 to 50"),
    ({"approvers": [{"of": "role:a", "quorum": True}]}, "approvers.0", "1 to 50"),
    ({"approvers": [{"of": "role:a", "number": 2}]}, "approvers", "unknown key `number`"),
    ({"approvers": ["role:b", {"of": "role:a"}]}, "approvers", "mixes names and groups"),
    ({"approvers": [{"of": "role:a"}, {"of": ["role:a"], "quorum": 2}]}, "approvers", "same people"),
    ({"approvers": [{"of": "role:a"}, {"of": "role:b"}], "quorum": 2}, "quorum", "leave it out"),
    ({"approvers": [{"of": "role:a"}], "route_to": "['role:b']"}, "route_to", "one of both"),
    (
        {"approvers": [{"of": "role:a"}], "escalate_after": 60, "escalate_to": ["role:a"]},
        "escalate_to",
        "fill another group's place",
    ),
    ({"approvers": [{"of": "user:ana", "quorum": 2}]}, "approvers", "more people than they name"),
    (
        {"approvers": [{"of": ["user:a", "user:b"]}, {"of": "user:a"}, {"of": "user:b"}]},
        "approvers",
        "more people than they name",
    ),
)
def test_groups_that_cannot_be_filled_are_refused(fields: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(**fields)
    assert caught.value.context["field"] == field
    assert words in caught.value.message


def test_group_quorum_is_limited_to_fifty() -> None:
    assert policy(approvers=[{"of": "role:a", "quorum": 50}]).people_needed == 50
    with pytest.raises(ConfigError) as caught:
        policy(approvers=[{"of": "role:a", "quorum": 51}])
    assert caught.value.message.count("1 to 50") == 1
    with pytest.raises(ConfigError) as caught:
        policy(approvers=[{"of": "role:a", "number": 2}])
    assert (caught.value.context["field"], caught.value.context["value"]) == ("approvers", "number")
