import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from turn_fixtures import Ledger, RunningTurns, TurnRig, catalog_of, no, pay_tool, yes

from signoff.approvals.digest import question_hash
from signoff.contracts.decision import Decision, GrantRequest
from signoff.contracts.ids import TurnKey
from signoff.contracts.receipt import Receipt
from signoff.contracts.turn import TurnResult
from signoff.formats.replace import replace
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.catalog import Catalog
from signoff.store.freezes import Freezes
from signoff.store.grants import Grants
from signoff.store.questions.questions import Questions
from signoff.testing.questions import answer
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond, results

SMALL = GrantRequest(scope="tenant", where="args.amount <= 50.0", seconds=600, uses=2)


def react(request: Any) -> Any:
    return (
        respond("done") if results(request) else calls(("pay", {"amount": int(last_user_text(request)), "to": "Ana"}))
    )


def catalog_with(ledger: Ledger, **policy: Any) -> Catalog:
    return catalog_of([pay_tool(ledger, ApprovalPolicy(**({"allow_remember": True} | policy)))])


async def receipt_of(found: RunningTurns, decision: Decision) -> Receipt:
    rows = await Questions(found.store).read(decision.approval_id)
    assert rows is not None
    named = replace(decision, question_hash=question_hash(rows.latest), received_at=datetime.now(UTC))
    await answer(found.store, named)
    return await found.signoff.decide(named)


async def ended(found: RunningTurns, key: TurnKey) -> TurnResult:
    return await found.signoff.result(key)


@pytest.mark.row("E55")
async def test_remembered_approval_covers_matching_calls_until_spent(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(catalog_with(ledger), ScriptedModel(react)) as found:
        first = await found.start("20")
        await found.waiting(first)
        receipt = await receipt_of(found, yes(first, remember=SMALL))
        assert receipt.status == "accepted"
        await ended(found, first)
        (grant,) = await Grants(turn_rig.store).all("main")
        assert (grant.verdict, grant.people, grant.uses_left) == ("approved", ("approver",), 2)
        assert (grant.like.session, grant.like.where, grant.approval_id) == ("", SMALL.where, yes(first).approval_id)
        for amount in ("30", "50"):
            result = await ended(found, await found.start(amount))
            assert [(call.code, call.rule.label, call.approval_id) for call in result.calls] == [
                ("ok", f"grant:{grant.id}", "")
            ]
        large, third = await found.start("51"), await found.start("5")
        await found.waiting(large)
        await found.waiting(third)
        assert [row[1]["amount"] for row in ledger.rows] == [20, 30, 50]
        assert [(each.uses, each.uses_left) for each in await Grants(turn_rig.store).all("main", every=True)] == [
            (2, 0)
        ]
        for key in (large, third):
            await found.signoff.decide(no(key))
            await ended(found, key)


async def test_turns_racing_for_a_grants_last_use_run_it_once(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running(catalog_with(ledger), ScriptedModel(react)) as found:
        first = await found.start("20")
        await found.waiting(first)
        await receipt_of(found, yes(first, remember=replace(SMALL, uses=1)))
        await ended(found, first)
        keys = await asyncio.gather(*(found.start(str(amount)) for amount in range(1, 7)))
        views = [await found.until(key, lambda view: view.result is not None or _asks(view)) for key in keys]
        assert sum(view.result is not None for view in views) == 1
        assert len(ledger.rows) == 2
        for key, view in zip(keys, views, strict=True):
            if view.result is None:
                revision = next(call.approval.revision for call in view.calls if call.approval is not None)
                assert (await found.signoff.decide(yes(key, revision=revision))).status == "accepted"
            await ended(found, key)
        assert sorted(row[1]["amount"] for row in ledger.rows) == [1, 2, 3, 4, 5, 6, 20]


def _asks(view: Any) -> bool:
    return any(call.approval is not None and call.approval.state == "pending" for call in view.calls)


async def test_remembered_denial_names_its_author(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(catalog_with(ledger), ScriptedModel(react)) as found:
        first = await found.start("700")
        await found.waiting(first)
        wish = GrantRequest(scope="tenant", where="args.amount > 500.0", seconds=600, uses=5)
        assert (await receipt_of(found, no(first, remember=wish))).status == "accepted"
        result = await ended(found, await found.start("800"))
        (outcome,) = result.calls
        assert outcome.denied is not None
        assert (outcome.code, outcome.denied.source, outcome.denied.decided_by) == ("denied", "repeat", "approver")
        assert (outcome.denied.approval_id, outcome.denied.reason) == (no(first).approval_id, "too expensive")
        assert (ledger.rows, (await Grants(turn_rig.store).all("main"))[0].uses_left) == ([], 4)


async def test_remembered_answer_outside_the_gateway_is_refused(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running(catalog_with(ledger), ScriptedModel(react)) as found:
        key = await found.start("20")
        await found.waiting(key)
        for decision in (yes(key, remember=SMALL), no(key, remember=SMALL)):
            receipt = await found.signoff.decide(decision)
            assert (receipt.status, receipt.code, receipt.state) == ("refused", "malformed", "pending")
            assert receipt.message == "`remember`: only an answer given through the gateway is remembered"
        assert (await found.signoff.decide(yes(key))).status == "accepted"
        await ended(found, key)
        assert await Grants(turn_rig.store).all("main", every=True) == []


async def test_policy_without_allow_remember_refuses_remembering(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(catalog_with(ledger, allow_remember=False), ScriptedModel(react)) as found:
        key = await found.start("20")
        await found.waiting(key)
        receipt = await found.signoff.decide(yes(key, remember=SMALL))
        assert (receipt.code, receipt.why, receipt.state) == ("not_allowed", "remember", "pending")
        await found.signoff.decide(no(key))
        await ended(found, key)


async def test_frozen_tenant_denies_even_approved_calls(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    free = pay_tool(ledger, False, name="free", read_only=True)
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(allow_remember=True)), free])
    async with turn_rig.running(catalog, ScriptedModel(react)) as found:
        waiting = await found.start("20")
        await found.waiting(waiting)
        await Freezes(turn_rig.store).freeze("main", reason="the laptop is gone", by="approver")
        assert (await found.signoff.decide(yes(waiting))).status == "accepted"
        for key in (waiting, await found.start("30")):
            (outcome,) = (await ended(found, key)).calls
            assert outcome.denied is not None
            assert (outcome.code, outcome.denied.source) == ("denied", "policy")
            assert outcome.denied.reason == "frozen: the laptop is gone"
        assert ledger.rows == []
        await Freezes(turn_rig.store).unfreeze("main")
        again = await found.start("40")
        await found.waiting(again)
        await found.signoff.decide(yes(again))
        await ended(found, again)
        assert [row[1]["amount"] for row in ledger.rows] == [40]
