from pathlib import Path

import pytest
from tables import table
from turn_fixtures import Ledger, pay_tool

from signoff.contracts.errors import ConfigError
from signoff.contracts.person import Person
from signoff.people.directory import FixedDirectory
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.approver_coverage import check_approver_coverage, find_holes
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.catalog_diff import catalog_diff
from signoff.registry.manifest.loader import load_manifest
from signoff.registry.manifest.on_call_sections import OnCallRota, VendorSchedule
from signoff.registry.normal_form import normal_form, normal_text

GOOD = """\
version: 1
defaults: {approvers: ["oncall:payments"]}
oncall:
  payments: {ical: env:ROTA, timezone: Europe/Lisbon}
  search: {pagerduty: {schedule: PABC123, token: env:PAGERDUTY}, tenant: acme}
  infra: {opsgenie: {schedule: a-b, token: file:/run/key, url: "https://api.eu.opsgenie.com"}}
"""
PAYMENTS = OnCallRota("payments", ical="env:ROTA")


def written(folder: Path, text: str) -> Path:
    path = folder / "signoff.yaml"
    path.write_text(text)
    return path


def asking(*approvers: str, rota: OnCallRota = PAYMENTS, **policy: object) -> Catalog:
    rules = ApprovalPolicy.model_validate({"approvers": list(approvers), **policy})
    return build_catalog(tools=[pay_tool(Ledger(), rules)], on_call=[rota])


def test_manifest_declares_rotas(tmp_path: Path) -> None:
    assert dict(load_manifest(written(tmp_path, GOOD)).on_call) == {
        "payments": OnCallRota("payments", ical="env:ROTA", timezone="Europe/Lisbon"),
        "search": OnCallRota("search", pagerduty=VendorSchedule("PABC123", "env:PAGERDUTY"), tenant="acme"),
        "infra": OnCallRota(
            "infra", opsgenie=VendorSchedule("a-b", "file:/run/key", url="https://api.eu.opsgenie.com")
        ),
    }


@table(
    ("old", "new", "why"),
    ("oncall:payments", "oncall:payment", "unknown rota `payment`; did you mean `payments`"),
    ("  payments:", "  'a b':", "has no name such as `payments`"),
    ("ical: env:ROTA, ", "", "needs one of `ical`, `pagerduty` and `opsgenie`"),
    ("ical: env:ROTA", "ical: env:ROTA, opsgenie: {schedule: a, token: env:B}", "needs one of `ical`"),
    ("env:ROTA", "4711", "must be text"),
    ("env:ROTA", "ftp://secret.example/a", "begins with `https://` in `ical`"),
    ("Europe/Lisbon", "Europe/Lisbn", "wrong `timezone`"),
    ("tenant: acme", "tenant: 'a b'", "invalid tenant"),
    ("env:PAGERDUTY", "u+4711", "needs an API key in `token`, as `env:NAME`"),
    (", token: env:PAGERDUTY", "", "needs an API key in `token`"),
    ("schedule: PABC123", "schedule: ''", "needs the id of a schedule"),
    ("https://api.eu.opsgenie.com", "api.eu.opsgenie.com", "begins with `https://` in `url`"),
    ("schedule: PABC123, ", "", "needs the id of a schedule"),
    ("pagerduty:", "pagerdutty:", "did you mean `pagerduty`"),
)
def test_unusable_rota_is_refused_at_load(old: str, new: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        load_manifest(written(tmp_path, GOOD.replace(old, new, 1)))
    assert "secret.example" not in caught.value.message
    assert "4711" not in caught.value.message or "must be text" in why


@table(
    "policy",
    {"approvers": ["oncall:payment"]},
    {"approvers": [{"of": "oncall:payment"}]},
    {"approvers": ["role:x"], "escalate_after": 60, "escalate_to": ["oncall:payment"]},
    {"approvers": ["role:x"], "terms": [{"when": "true", "approvers": ["oncall:payment"]}]},
)
def test_unknown_rota_of_a_policy_is_an_error(policy: dict[str, object]) -> None:
    rules = ApprovalPolicy.model_validate(policy)
    with pytest.raises(ConfigError, match="tool `pay` names the unknown rota `payment`; did you mean `payments`"):
        build_catalog(tools=[pay_tool(Ledger(), rules)], on_call=[PAYMENTS])
    with pytest.raises(ConfigError, match="declare it in `oncall`"):
        build_catalog(tools=[pay_tool(Ledger(), rules)])


def test_rota_declared_twice_is_an_error() -> None:
    with pytest.raises(ConfigError, match="declared twice"):
        build_catalog(on_call=[PAYMENTS, PAYMENTS])


def test_rota_covers_a_tool_without_a_person_on_call() -> None:
    people = FixedDirectory([Person(id="ana", roles=("finance",))])
    catalog = asking("oncall:payments", quorum=2, escalate_after=60, escalate_to=["oncall:payments"])
    check_approver_coverage(catalog, people)
    assert find_holes(catalog, people.all()) == {}
    group = asking({"of": "oncall:payments", "quorum": 2})  # type: ignore[arg-type]
    assert find_holes(group, people.all()) == {}


def test_rota_is_in_the_normal_form_and_not_in_the_hash() -> None:
    one, other = asking("oncall:payments"), asking("oncall:payments", rota=OnCallRota("payments", ical="env:OTHER"))
    assert normal_form(one)["oncall"] == {"payments": {"ical": "env:ROTA"}}
    assert [change.name for change in catalog_diff(one, other).changes] == ["payments"]
    secret = asking("oncall:payments", rota=OnCallRota("payments", ical="https://rota.example/secret.ics"))
    assert "rota.example" not in normal_text(secret)
    assert [change.name for change in catalog_diff(one, secret).changes] == ["payments"]
    assert one.hash == other.hash
