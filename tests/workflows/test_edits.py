import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from some import some
from sqlalchemy import Connection
from temporalio import activity
from temporalio.client import Client
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    running_turns,
    withdrawn,
    yes,
)

from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.errors import StoreUnavailable
from signoff.contracts.ids import TurnKey
from signoff.contracts.limits import INLINE_BYTES
from signoff.formats.json_schema import SchemaProblem
from signoff.formats.replace import replace
from signoff.people.directory import development_directory
from signoff.registry.hooks import Correction
from signoff.store.questions.request_lists import RequestLists
from signoff.store.store import Store
from signoff.testing.builders import a_person
from signoff.testing.scripted_model import calls, respond

PAY = ("pay", {"amount": 420, "to": "Ana"})
SCRIPT = [calls(PAY), respond("done")]
PEOPLE = development_directory([a_person(name) for name in ("ana", "bo", "cy")])


async def request_of(turns: RunningTurns, key: TurnKey) -> ApprovalRequest:
    return some((await turns.signoff.view(key)).calls[0].approval)


class _AwayForGates(Store):
    """Fails for every gate while `away` is set."""

    away = False

    async def run(self, work: Callable[[Connection], Any]) -> Any:
        if self.away and activity.in_activity() and activity.info().activity_type == names.GATE:
            raise StoreUnavailable("away for a moment")
        return await super().run(work)


@pytest.mark.parametrize("door", ["update", "signal"])
async def test_edit_during_a_store_outage_is_refused_and_the_turn_waits(
    door: str, client: Client, tmp_path: Path, task_queue: str, ledger: Ledger
) -> None:
    store = await _AwayForGates.open(f"sqlite:///{tmp_path}/signoff.db")
    assert isinstance(store, _AwayForGates)
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(edit="approve"))])
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        turns = await stack.enter_async_context(running_turns(client, store, task_queue, catalog, SCRIPT))
        key = await turns.start()
        request = some((await turns.waiting(key)).calls[0].approval)
        answer = yes(key, edited_args={"amount": 380, "to": "Ana"}, question_hash=request.question_hash)
        store.away = True
        if door == "update":
            receipt = await turns.signoff.decide(answer)
            assert (receipt.status, receipt.code) == ("refused", "unavailable")
        else:
            handle = client.get_workflow_handle(key.workflow_id)
            await handle.signal(names.APPROVAL_RESPONSE, answer.model_dump(mode="json", exclude_none=True))
            # Two markers: the author's identity and the gates' reply.
            while (await turns.events(key)).count("MARKER_RECORDED") < 2:
                await asyncio.sleep(0.05)
        store.away = False
        await turns.signoff.decide(replace(answer, delivery_id="again"))
        result = await turns.signoff.result(key)
    assert [call.code for call in result.calls] == ["ok"]
    assert [row[1] for row in ledger.rows] == [{"amount": 380, "to": "Ana"}]


@pytest.mark.row("V17")
@pytest.mark.parametrize("door", ["update", "signal"])
async def test_edited_call_runs_with_the_edited_arguments(door: str, turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger, ApprovalPolicy(edit="approve"))], SCRIPT) as turns:
        key = await turns.start()
        first = some((await turns.waiting(key)).calls[0].approval)
        answer = yes(key, edited_args={"amount": 380, "to": "Ana"}, question_hash=first.question_hash)
        if door == "update":
            receipt = await turns.signoff.decide(answer)
            assert (receipt.status, receipt.state, receipt.decided_by) == ("accepted", "approved", "approver")
        else:
            handle = turn_rig.client.get_workflow_handle(key.workflow_id)
            await handle.signal(names.APPROVAL_RESPONSE, answer.model_dump(mode="json", exclude_none=True))
        result = await turns.signoff.result(key)
        request, value = await request_of(turns, key), await turns.results(key)
    assert [row[1] for row in ledger.rows] == [{"amount": 380, "to": "Ana"}]
    assert [(call.code, call.edited_by, call.decided_by) for call in result.calls] == [("ok", "approver", "approver")]
    assert (request.revision, request.edited_by, request.digest != first.digest) == (2, "approver", True)
    assert request.before == first.card.rows
    assert (request.card.effect, request.card.note) == ("Pay 380 to Ana", "Approver edited the arguments")
    assert value[0].note == "A person changed arguments of this call before it ran: amount is 380 (was 420)."


async def test_edit_under_a_quorum_voids_earlier_votes(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(edit="approve", quorum=2))])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana"))
        edit = await turns.signoff.decide(yes(key, subject="bo", edited_args={"amount": 380, "to": "Ana"}))
        before, listed = (await RequestLists(turn_rig.store).of_turns([key]))[key]
        waiting = await turns.signoff.request(yes(key).approval_id)
        stale = await turns.signoff.decide(yes(key, subject="cy"))
        last = await turns.signoff.decide(yes(key, subject="ana", revision=2, question_hash=waiting.question_hash))
        await turns.signoff.result(key)
    assert edit.status == "counted"
    assert [vote.subject for vote in waiting.votes] == ["bo"]
    assert (before.revision, before.edit_of) == (1, 0)
    assert (listed.revision, listed.kind, listed.edit_of, listed.escalated) == (2, "approval", 1, False)
    assert (stale.code, last.status) == ("stale", "accepted")
    assert [row[1]["amount"] for row in ledger.rows] == [380]


@pytest.mark.parametrize(
    ("policy", "edited", "code", "says"),
    [
        ({}, {"amount": "380"}, "malformed", "`amount`"),
        ({}, {"amount": 380, "too": "Ana"}, "malformed", "too"),
        ({}, {"to": "Ana"}, "malformed", "amount"),
        ({}, {"amount": 2**60}, "malformed", "as a string"),
        ({"deny_if": "args.amount > 1000.0"}, {"amount": 1001}, "not_allowed", "`deny_if` is true"),
        ({"edit": "off"}, {"amount": 380}, "not_allowed", "edit"),
        (
            {"route_to": "args.amount > 1000.0 ? ['role:cfo'] : ['role:approvers']"},
            {"amount": 1001},
            "not_allowed",
            "other approvers",
        ),
    ],
)
async def test_edit_is_judged_like_a_proposed_call(
    policy: dict[str, Any], edited: dict[str, Any], code: str, says: str, turn_rig: TurnRig, ledger: Ledger
) -> None:
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(**{"edit": "approve"} | policy))])
    async with turn_rig.running(catalog, SCRIPT) as turns:
        key = await turns.start_waiting()
        before = await request_of(turns, key)
        receipt = await turns.signoff.decide(yes(key, edited_args=edited))
        after = await request_of(turns, key)
        await turns.signoff.decide(no(key))
        await turns.signoff.result(key)
    assert (receipt.status, receipt.code) == ("refused", code)
    assert says in (receipt.message or receipt.why), receipt
    assert "call it again" not in receipt.message
    assert after == before
    assert ledger.rows == []


async def test_edit_within_auto_approval_still_needs_its_quorum(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(edit="approve", auto_approve_if="args.amount < 50.0", quorum=2)
    async with turn_rig.running([pay_tool(ledger, policy)], SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 5}))
        assert receipt.status == "counted"
        assert ledger.rows == []
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        await turns.signoff.result(key)
    assert [row[1] for row in ledger.rows] == [{"amount": 5}]


async def test_edit_within_auto_approval_keeps_its_routed_approvers(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(edit="approve", auto_approve_if="args.amount < 50.0", route_to="['role:approvers']")
    catalog = catalog_of([pay_tool(ledger, policy)], default_approvers=("role:others",))
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        receipt = await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 5}))
        assert receipt.status == "accepted", receipt.message
        result = await turns.signoff.result(key)
    assert [each.code for each in result.calls] == ["ok"]
    assert [row[1] for row in ledger.rows] == [{"amount": 5}]


async def test_edited_call_can_be_edited_again(turn_rig: TurnRig, ledger: Ledger) -> None:
    catalog = catalog_of([pay_tool(ledger, ApprovalPolicy(edit="approve", quorum=2))])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 380, "to": "Ana"}))
        await turns.signoff.decide(yes(key, subject="bo", edited_args={"amount": 300, "to": "Ana"}, revision=2))
        result = await turns.result_after(yes(key, subject="ana", revision=3))
        results = await turns.results(key)
    assert [row[1]["amount"] for row in ledger.rows] == [300]
    assert result.calls[0].edited_by == "bo"
    assert results[0].note.endswith("amount is 300 (was 420).")


async def test_one_of_concurrent_edits_is_accepted(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger, ApprovalPolicy(edit="approve"))], SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        edits = [yes(key, subject=who, edited_args={"amount": n}) for n, who in ((1, "ana"), (2, "bo"), (3, "cy"))]
        receipts = await asyncio.gather(*(turns.signoff.decide(edit) for edit in edits))
        result = await turns.signoff.result(key)
    assert sorted(receipt.status for receipt in receipts) == ["accepted", "refused", "refused"]
    assert {receipt.code for receipt in receipts} <= {"", "stale", "already_decided"}
    assert len(ledger.rows) == 1
    winner = next(edit for edit, receipt in zip(edits, receipts, strict=True) if receipt.status == "accepted")
    assert (ledger.rows[0][1], result.calls[0].edited_by) == (winner.edited_args, winner.subject)


async def test_person_without_authority_cannot_edit(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger(), ApprovalPolicy(edit="approve"))], SCRIPT) as turns:
        key = await turns.start_waiting()
        # Ask the server: the view may answer before the task ends that suspended the turn.
        await turns.suspended(key)
        before = len(await turns.events(key))
        codes = [
            (await turns.signoff.decide(yes(key, subject=who, edited_args={"amount": 1}))).code
            for who in ("guest", "stranger")
        ]
        grown = (await turns.events(key))[before:]
        await turns.signoff.withdraw(withdrawn(key))
        await turns.signoff.result(key)
    assert set(codes) <= {"not_allowed", "self_approval"}
    assert grown.count("MARKER_RECORDED") == 2


async def test_large_edited_arguments_are_kept_in_the_store(turn_rig: TurnRig) -> None:
    ledger, long = Ledger(), "é" * INLINE_BYTES
    async with turn_rig.running([pay_tool(ledger, ApprovalPolicy(edit="approve"))], SCRIPT) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, edited_args={"amount": 1, "to": long}))
        await turns.signoff.result(key)
        request = await request_of(turns, key)
    assert request.args.blob is not None
    assert [row[1]["to"] for row in ledger.rows] == [long]


async def test_edited_request_keeps_its_code(turn_rig: TurnRig) -> None:
    catalog = catalog_of([pay_tool(Ledger(), ApprovalPolicy(edit="approve", quorum=2))])
    async with turn_rig.running(catalog, SCRIPT, people=PEOPLE) as turns:
        key = await turns.start()
        code = (await request_of(turns, key)).code if (await turns.waiting(key)) else ""
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 1}))
        asked = (await RequestLists(turn_rig.store).of_turns([key]))[key]
        await turns.signoff.decide(no(key, subject="bo", revision=2))
        await turns.signoff.result(key)
    assert [(each.revision, each.code) for each in asked] == [(1, code), (2, code)]


def capitals(args: Any) -> list[SchemaProblem] | Correction:
    name = args["to"]
    return [] if name == name.title() else Correction({**args, "to": name.title()}, "names have a capital")


async def test_corrected_edit_needs_another_approval(turn_rig: TurnRig, ledger: Ledger) -> None:
    policy = ApprovalPolicy(edit="approve", auto_approve_if="args.amount < 50.0", quorum=2)
    async with turn_rig.running([pay_tool(ledger, policy)], SCRIPT, people=PEOPLE) as turns:
        key = await turns.start_waiting()
        await turns.signoff.decide(yes(key, subject="ana", edited_args={"amount": 5, "to": "bo"}))
    changed = catalog_of([pay_tool(ledger, policy, validate_input=capitals)])
    async with turn_rig.running(changed, SCRIPT, people=PEOPLE) as turns:
        await turns.signoff.decide(yes(key, subject="bo", revision=2))
        view = await turns.until(key, lambda view: any(c.approval and c.approval.revision == 3 for c in view.calls))
        assert ledger.rows == []
        again = some(view.calls[0].approval)
        for person in ("ana", "bo"):
            await turns.signoff.decide(yes(key, subject=person, revision=3))
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert (again.state, again.card.effect, again.args.inline) == ("pending", "Pay 5 to Bo", {"amount": 5, "to": "Bo"})
    assert "The arguments were corrected (`to`): names have a capital." in again.card.note
    assert [row[1] for row in ledger.rows] == [{"amount": 5, "to": "Bo"}]
    assert [(each.code, each.edited_by) for each in result.calls] == [("ok", "ana")]
