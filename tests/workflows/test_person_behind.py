from typing import Any

import pytest
from turn_fixtures import Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.audit.log import AuditLog
from signoff.contracts.call import CallContext
from signoff.contracts.person import Principal
from signoff.formats.replace import replace
from signoff.people.directory import DevelopmentDirectory, FixedDirectory, principal_of
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.cel_context import context_mapping
from signoff.registry.hooks import HookContext, Permission
from signoff.registry.tool_context import ToolContext
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

ANA = a_person("ana")
ADMIN = a_person("ana-admin", person_id="ana")
BO = a_person("bo")
CY = a_person("cy")
KNOWN = FixedDirectory([ANA, ADMIN, BO, CY])
ASKER = principal_of(ADMIN, KNOWN)


@pytest.mark.row("B76")
def test_principal_carries_the_person_behind_its_account() -> None:
    assert (ASKER.user, ASKER.person_id, ASKER.human) == ("ana-admin", "ana", "ana")
    assert (principal_of(ANA, KNOWN).person_id, principal_of(ANA, KNOWN).human) == ("", "ana")
    for asker, human in ((ASKER, "ana"), (principal_of(BO, KNOWN), "bo")):
        ctx = CallContext(actor="desk", session="s", turn="t", tenant="main", user=asker)
        assert context_mapping(ctx)["user"]["person_id"] == human


@pytest.mark.row("B76")
async def test_person_reaches_handler_rules_audit_and_separation_of_duties(turn_rig: TurnRig) -> None:
    entries: list[ToolContext] = []
    hooked: list[HookContext] = []

    def note(args: dict[str, Any], context: ToolContext) -> str:
        entries.append(context)
        return "paid"

    async def check(args: dict[str, Any], context: HookContext) -> Permission:
        hooked.append(context)
        return Permission.allow()

    policy = ApprovalPolicy(require_approval_if="ctx.user.person_id == 'ana'", auto_approve_if="true")
    tool = pay_tool(Ledger(), policy, handler=Ledger().handler("pay", note), check_permissions=check)
    script = [calls(("pay", {"amount": 20})), respond("done")]
    people = DevelopmentDirectory(KNOWN)
    async with turn_rig.running([tool], script, people=people) as turns:
        key = await turns.start_waiting(principal=ASKER)
        assert (await turns.signoff.decide(yes(key, subject="ana"))).code == "self_approval"
        assert (await turns.signoff.decide(yes(key, subject="ana-admin"))).code == "self_approval"
        result = await turns.result_after(yes(key, subject="bo"))
    assert [call.code for call in result.calls] == ["ok"]
    assert [(each.user_id, each.person_id) for each in entries] == [("ana-admin", "ana")]
    assert {(each.user.user, each.person_id) for each in hooked} == {("ana-admin", "ana")}
    records = await AuditLog(turn_rig.store).stream(key.workflow_id)
    kinds = {each.kind for each in records if each.facts.get("person_id") == "ana"}
    assert {"turn", "request", "attempt", "execution", "outcome"} <= kinds


@pytest.mark.row("B76")
async def test_requester_cannot_approve_after_their_account_is_removed(turn_rig: TurnRig, ledger: Ledger) -> None:
    # The directory no longer links the account to its person, but the gateway's knowledge at the time of the request
    # counts. With only the current directory, the call ran on Ana's own approval.
    script = [calls(("pay", {"amount": 20})), respond("done")]
    people = DevelopmentDirectory(KNOWN)
    async with turn_rig.running([pay_tool(ledger)], script, people=people) as turns:
        key = await turns.start_waiting(principal=ASKER)
        people.declared = FixedDirectory([ANA, BO])
        assert (await turns.signoff.decide(yes(key, subject="ana"))).code == "self_approval"
        assert ledger.rows == []
        result = await turns.result_after(yes(key, subject="bo"))
    assert [call.code for call in result.calls] == ["ok"]


@pytest.mark.row("B76")
async def test_two_accounts_of_one_person_count_as_one_voter(turn_rig: TurnRig, ledger: Ledger) -> None:
    script = [calls(("pay", {"amount": 20})), respond("done")]
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(quorum=2))])
    people = DevelopmentDirectory(KNOWN)
    async with turn_rig.running(catalog, script, people=people) as turns:
        key = await turns.start_waiting(principal=Principal(user="bo"))
        await turns.signoff.decide(yes(key, subject="ana"))
        assert (await turns.signoff.decide(yes(key, subject="ana-admin"))).votes == 1
        assert ledger.rows == []
        assert (await turns.signoff.decide(yes(key, subject="bo"))).code == "self_approval"
        await turns.signoff.decide(yes(key, subject="cy"))
        await turns.signoff.result(key)
    assert len(ledger.rows) == 1


@pytest.mark.row("B76")
async def test_rule_does_not_run_a_call_for_an_account_linked_to_another_person(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    tool = pay_tool(ledger, ApprovalPolicy(auto_approve_if="ctx.user.person_id == 'bo'"))
    script = [calls(("pay", {"amount": 20})), respond("done")]
    people = DevelopmentDirectory(KNOWN)
    async with turn_rig.running([tool], script, people=people) as turns:
        key = await turns.start_waiting(principal=replace(ASKER, person_id="bo"))
        assert ledger.rows == []
        await turns.signoff.decide(yes(key, subject="cy"))
        await turns.signoff.result(key)
