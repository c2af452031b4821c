"""An event starts a turn whose requester is no person, so rules that exclude some people hold for it.

Otherwise an attacker causes an event, and a rule such as `tier != "external"` runs the calls.
"""

import pytest
from tables import table
from turn_fixtures import GUEST, Ledger, pay_tool

from signoff.contracts.call import CallContext
from signoff.contracts.names import SUBSCRIPTION
from signoff.contracts.person import Principal
from signoff.policy.approval_policy import ApprovalPolicy, GlobalRule
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog, build_catalog
from signoff.registry.manifest.subscription_sections import Subscription
from signoff.testing import a_call_context, execute_parallel

WATCH = Subscription("payouts", ("tool_call:pay",), starts="desk")
SUBSCRIBED = Principal(user=WATCH.requester, name="Subscription payouts", tier="")
EXCLUDING = (
    'ctx.user.tier != "external"',
    '!("contractor" in ctx.user.roles)',
    'ctx.user.roles.all(role, role != "contractor")',
    'ctx.user.person_id != "eve"',
    '!(ctx.user.tier == "external")',
)


def catalog_with(policy: ApprovalPolicy | bool, *rules: GlobalRule) -> Catalog:
    desk = Actor(name="desk", description="", instructions="", model="scripted")
    return build_catalog(
        tools=[pay_tool(Ledger(), requires_approval=policy)], actors=[desk], subscriptions=[WATCH], policies=rules
    )


def asked_by(user: Principal) -> CallContext:
    return a_call_context(user=user, channel=SUBSCRIPTION if user is SUBSCRIBED else "chat")


async def kind_of(catalog: Catalog, user: Principal) -> str:
    [made] = await execute_parallel(catalog, [("pay", {"amount": 420, "to": "Eve"})], asked_by(user))
    return made.kind


@table("rule", *EXCLUDING)
async def test_rule_that_excludes_people_runs_no_call_of_a_subscription(rule: str) -> None:
    catalog = catalog_with(ApprovalPolicy(auto_approve_if=rule))
    assert [await kind_of(catalog, user) for user in (GUEST, SUBSCRIBED)] == ["run", "ask"]


async def test_rule_without_personal_facts_still_runs_subscription_calls() -> None:
    catalog = catalog_with(ApprovalPolicy(auto_approve_if='ctx.user.id == "subscription:payouts"'))
    assert [await kind_of(catalog, user) for user in (GUEST, SUBSCRIBED)] == ["ask", "run"]


@pytest.mark.parametrize("effect", ["deny", "hide"])
async def test_denying_rule_about_people_holds_for_a_subscription(effect: str) -> None:
    rule = GlobalRule(name="external", rule='ctx.user.tier == "external"', effect=effect)  # type: ignore[arg-type]
    catalog = catalog_with(False, rule)
    assert await kind_of(catalog, GUEST) == "run"
    assert await kind_of(catalog, SUBSCRIBED) == "settled"
