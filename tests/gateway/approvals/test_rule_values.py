from datetime import UTC, datetime
from typing import Any

from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.approvals.card import render_card
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import RuleReference
from signoff.contracts.content import Content
from signoff.gateway.approvals.rule_values import rule_values
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.testing import a_request
from signoff.texts.formatter import Formatter

ENGLISH = Formatter("en", UTC, datetime(2026, 11, 21, 17, 0, tzinfo=UTC))
ARGS: dict[str, Any] = {"amount": 9_400, "to": "Ana"}
RULE = "args.amount > 1000.0"
ASKS = RuleReference(name="require_approval_if")


def catalog(policy: ApprovalPolicy) -> Catalog:
    return catalog_of([pay_tool(Ledger(), policy)])


def asked(rule: RuleReference, text: str, secrets: tuple[str, ...] = ()) -> ApprovalRequest:
    card = render_card(effect="Pay", title="", tool="pay", args=ARGS, schema={}, secrets=secrets)
    return a_request(tool="pay", args=Content(inline=ARGS), card=card, rule=rule, rule_text=text)


def test_values_of_the_rule_are_written_as_on_the_card() -> None:
    own = catalog(ApprovalPolicy(require_approval_if=RULE))
    assert rule_values(asked(ASKS, RULE), ARGS, own, ENGLISH) == "Amount 9,400.00 > 1,000.00"
    runs = catalog(ApprovalPolicy(auto_approve_if="args.amount < 50.0"))
    automatic = RuleReference(name="auto_approve_if")
    assert rule_values(asked(automatic, "args.amount < 50.0"), ARGS, runs, ENGLISH) == "Amount 9,400.00 ≥ 50.00"


def test_rule_that_the_gateway_did_not_compile_gives_no_values() -> None:
    own = catalog(ApprovalPolicy(require_approval_if=RULE))
    assert rule_values(asked(ASKS, "args.amount > 1.0"), ARGS, own, ENGLISH) == ""
    assert rule_values(asked(RuleReference(name="deny_if"), RULE), ARGS, own, ENGLISH) == ""
    assert rule_values(asked(RuleReference(kind="permission"), RULE), ARGS, own, ENGLISH) == ""


def test_secret_value_is_left_out() -> None:
    own = catalog(ApprovalPolicy(require_approval_if=RULE))
    assert rule_values(asked(ASKS, RULE, ("amount",)), ARGS, own, ENGLISH) == ""
