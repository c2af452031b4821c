from typing import Any

import pytest
from tables import table
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.formats.replace import replace
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy, RequiresApproval
from signoff.registry.approver_coverage import check_approver_coverage, find_holes

PEOPLE = FixedDirectory(
    [
        Person(id="ana", roles=("finance",)),
        Person(id="bo", roles=("finance", "cfo")),
        Person(id="cy", roles=("retired",), active=False),
        Person(id="dee", roles=("finance",), tenant="other"),
    ]
)


def check(people: FixedDirectory = PEOPLE, **policy: Any) -> None:
    asks: RequiresApproval = ApprovalPolicy(**policy)
    check_approver_coverage(catalog_of([pay_tool(Ledger(), asks)]), people)


def missing(asks: RequiresApproval, people: FixedDirectory = PEOPLE) -> str:
    try:
        check_approver_coverage(catalog_of([pay_tool(Ledger(), asks)]), people)
    except ConfigError as error:
        return error.message
    return ""


@table(
    "policy",
    {"approvers": ["role:finance"], "quorum": 2},
    {"approvers": ["user:ana", "user:nobody"]},
    {"approvers": ["user:ana"], "quorum": 2, "escalate_to": ["role:cfo"], "escalate_after": 60},
    {"approvers": ["role:finance"], "quorum": 9, "route_to": "['role:finance']"},
    {"approvers": ["role:finance"], "auto_approve_if": "args.amount < 5.0"},
    {"approvers": [{"of": "role:finance"}, {"of": "role:cfo"}]},
    {"approvers": [{"of": "role:cfo", "quorum": 2}], "escalate_to": ["user:ana"], "escalate_after": 60},
)
def test_policy_with_enough_people_is_accepted(policy: dict[str, Any]) -> None:
    assert missing(ApprovalPolicy(**policy)) == ""


@table(
    ("policy", "field", "says"),
    (
        {"approvers": ["role:finance"], "quorum": 3},
        "quorum",
        "tool `pay` needs 3 people to approve, but a tenant has at most 2: lower `quorum`, or add people to `people`",
    ),
    (
        {"approvers": ["role:finance", "role:finanse"]},
        "approvers",
        "tool `pay` names the role `finanse` in `approvers`, which no active person has; did you mean `finance`?",
    ),
    (
        {"approvers": ["role:finance"], "escalate_to": ["role:board"], "escalate_after": 60},
        "escalate_to",
        "tool `pay` names the role `board` in `escalate_to`, which no active person has; give it to a person in "
        "`people`, or leave it out",
    ),
    (
        {"approvers": ["role:finance"], "escalate_to": ["user:cy", "user:nobody"], "on_timeout": "escalate"},
        "escalate_to",
        "tool `pay` escalates to `user:cy`, `user:nobody`, but no active person is one of them: add one to "
        "`people`, or name others",
    ),
    (
        {
            "approvers": ["role:finance"],
            "escalate_to": ["role:cfo", "user:nobody"],
            "escalate_after": 60,
            "terms": [{"when": "args.amount > 1000.0", "escalate_to": ["user:nobody"]}],
        },
        "terms",
        "tool `pay` where `args.amount > 1000.0`, escalates to `user:nobody`, but no active person is one of them: "
        "add one to `people`, or name others",
    ),
    (
        {"approvers": ["role:retired", "user:cy"]},
        "approvers",
        "tool `pay` asks `role:retired`, `user:cy`, but no active person is one of them: add one to `people`, or "
        "name other `approvers`",
    ),
    (
        {"approvers": [{"of": "role:finance", "quorum": 2}, {"of": "role:cfo"}]},
        "quorum",
        "tool `pay` needs 3 people to approve, but a tenant has at most 2: lower `quorum`, or add people to `people`",
    ),
)
def test_policy_without_enough_people_names_tool_field_and_remedy(
    policy: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(**policy)
    assert caught.value.message == says
    assert (caught.value.context["tool_name"], caught.value.context["field"]) == ("pay", field)


@table(
    ("policy", "field", "says"),
    (
        {"approvers": [{"of": "role:finance"}, {"of": ["role:legal", "user:eve"], "quorum": 2}]},
        "approvers",
        "tool `pay` asks 1 of `role:finance`, 2 of `role:legal` or `user:eve`, each another person, but no tenant "
        "has such people: add them to `people`, or ask fewer",
    ),
    (
        {"approvers": [{"of": "role:finance"}, {"of": "role:legal"}], "edit": "propose"},
        "edit",
        "tool `pay` lets approvers propose other arguments, and once one of them did, the others cannot fill every "
        "group of `approvers`: add people to `people`, or use `edit: off` or `edit: approve`",
    ),
)
def test_groups_need_different_people_of_one_tenant(policy: dict[str, Any], field: str, says: str) -> None:
    people = [Person(id=name, roles=("finance",)) for name in ("ana", "bo", "cy")]
    people += [Person(id="lea", roles=("legal",)), Person(id="eve", tenant="other"), Person(id="lia", roles=("legal",))]
    few = FixedDirectory(people[:-1])
    with pytest.raises(ConfigError) as caught:
        check(few, **policy)
    assert (caught.value.message, caught.value.context["field"]) == (says, field)
    check(FixedDirectory(people), **policy)


@pytest.mark.row("E62", "V18")
def test_policy_is_refused_without_any_people() -> None:
    with pytest.raises(ConfigError, match="no active person is one of them"):
        check(FixedDirectory([]), approvers=["role:finance"])


def test_tool_without_approval_needs_no_people() -> None:
    assert (missing(False, FixedDirectory([])), missing(True, FixedDirectory([])) == "") == ("", False)


def test_roles_from_sign_in_count_as_filled() -> None:
    asks = ApprovalPolicy(approvers=("role:finance",), quorum=3, escalate_after=60, escalate_to=("role:board",))
    catalog = catalog_of([pay_tool(Ledger(), asks)])
    check_approver_coverage(catalog, FixedDirectory([]), by_login=("finance", "board"))
    with pytest.raises(ConfigError, match="names the role `board`"):
        check_approver_coverage(catalog, FixedDirectory([]), by_login=("finance",))
    with pytest.raises(ConfigError, match="no active person is one of them"):
        check_approver_coverage(catalog, FixedDirectory([]), by_login=("sales",))


def test_accounts_of_one_person_are_no_quorum() -> None:
    catalog = catalog_of([pay_tool(Ledger(), ApprovalPolicy(approvers=("role:finance",), quorum=2))])
    ana, bo = (Person(id=name, roles=("finance",)) for name in ("ana", "bo"))
    with pytest.raises(ConfigError, match="a tenant has at most 1"):
        check_approver_coverage(catalog, FixedDirectory([ana, replace(bo, person_id="ana")]))
    check_approver_coverage(catalog, FixedDirectory([ana, bo]))


def test_holes_are_named_by_tool_and_tenant() -> None:
    catalog = catalog_of([pay_tool(Ledger(), ApprovalPolicy(approvers=("role:finance",), quorum=2))])
    assert find_holes(catalog, PEOPLE.all("main")) == {}
    holes = find_holes(catalog, PEOPLE.all("other"))
    assert list(holes) == ["pay"]
    assert "needs 2 people to approve" in holes["pay"][0]
    assert find_holes(catalog, [], by_login=("finance",)) == {}
