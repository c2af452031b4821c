import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from call_rig import CallRig, approval_of, call_rig, refund_tool
from gateway_login import browser, words
from gateway_rig import PEOPLE
from temporalio.client import Client
from turn_fixtures import catalog_of

from signoff.contracts.activity_messages import UseReply
from signoff.contracts.approval import Question
from signoff.contracts.content import Content
from signoff.contracts.ids import TurnKey
from signoff.engine.call_client import CallClient
from signoff.formats.replace import replace
from signoff.gateway.calls import permit_service
from signoff.store.claim_conditions import add_restoration
from signoff.store.questions.questions import Questions
from signoff.store.store import Store, open_store
from signoff.store.tickets import ticket_key


@pytest.mark.row("C01")
async def test_automatic_call_is_used_in_the_answer_that_permits_it(agent: CallRig) -> None:
    answer = await agent.propose(use=True)
    used = answer.json()
    assert (answer.status_code, used["state"], used["args"]) == (200, "used", {"order": "A7", "euro": 20})
    assert (await agent.show(used["id"])).get("args") is None
    reported = await agent.report(used["id"], result={"refund": 17})
    assert (reported.status_code, reported.json()["state"], reported.json()["code"]) == (200, "ended", "ok")
    assert reported.json()["result"] == {"refund": 17}
    kinds = dict(await agent.record(used["id"]))
    assert kinds["execution"]["run_by"] == "coder"
    assert (kinds["outcome"]["code"], kinds["outcome"]["ticket"]) == ("ok", used["key"])


async def test_automatic_call_costs_15_events_if_its_agent_runs_it_and_12_if_signoff_does(
    agent: CallRig,
) -> None:
    async def used() -> str:
        call: str = (await agent.propose(use=True)).json()["id"]
        await agent.report(call)
        return call

    async def run() -> str:
        call: str = (await agent.propose(tool="pay", args={"amount": 20})).json()["id"]
        return call

    assert len(await _cheapest(agent, used, 15)) == 15
    assert len(await _cheapest(agent, run, 12)) == 12


async def test_approved_call_costs_27_events_if_its_agent_runs_it_and_21_if_signoff_does(agent: CallRig) -> None:
    """No timer is cancelled: the question's deadline is also the permit's."""

    async def used() -> str:
        call: str = (await agent.propose(euro=200)).json()["id"]
        await agent.decide(call)
        assert (await agent.show(call, wait=50))["state"] == "permitted"
        await agent.use(call)
        await agent.report(call)
        kinds = [kind for kind, _ in await agent.record(call)]
        assert kinds.count("attempt") == 1, kinds
        return call

    async def run() -> str:
        call: str = (await agent.propose(tool="pay", args={"amount": 200})).json()["id"]
        await agent.decide(call)
        assert (await agent.show(call, wait=50))["code"] == "ok"
        return call

    events = await _cheapest(agent, used, 27)
    assert (len(events), events.count("ACTIVITY_TASK_SCHEDULED")) == (27, 0)
    assert (events.count("TIMER_STARTED"), events.count("TIMER_CANCELED")) == (2, 0)
    assert len(await _cheapest(agent, run, 21)) == 21


async def _cheapest(agent: CallRig, act: Callable[[], Awaitable[str]], enough: int) -> list[str]:
    """On a busy machine a task may take longer and add three events."""
    found: list[list[str]] = []
    while len(found) < 4 and min(map(len, found), default=enough + 1) > enough:
        call = await act()
        # The store answers the agent a little before the turn learns of the report.
        await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
        found.append(await agent.events(call))
    return min(found, key=len)


@pytest.mark.row("C02")
async def test_waiting_call_is_approved_and_run_by_its_agent(agent: CallRig) -> None:
    answer = await agent.propose(euro=200)
    waiting = answer.json()
    call = waiting["id"]
    assert (answer.status_code, waiting["state"]) == (201, "waiting")
    early = await agent.use(call)
    assert (early.status_code, early.json()["code"]) == (409, "waiting")
    request = await agent.rig.request(approval_of(call))
    assert request.card.note == "`coder` runs the call itself, outside Signoff"
    async with browser(agent.rig) as page:
        card = words((await page.get(f"/approvals/{approval_of(call)}")).text)
    assert "coder runs the call itself, outside Signoff" in card
    assert "Revision 2" not in card
    assert (await agent.decide(call, reason="charged twice")).json()["status"] == "accepted"
    permitted = await agent.show(call, wait=20)
    assert (permitted["state"], permitted["args"]) == ("permitted", {"order": "A7", "euro": 200})
    assert (permitted["decided_by"], permitted["note"]) == ("Approver", "charged twice")
    assert (await agent.use(call)).json()["args"] == {"order": "A7", "euro": 200}
    late = await agent.use(call)
    assert (late.status_code, late.json()["code"]) == (409, "used")
    ended = (await agent.report(call)).json()
    assert (ended["state"], ended["code"], ended["decided_by"]) == ("ended", "ok", "Approver")


@pytest.mark.row("C04")
async def test_approver_may_edit_the_arguments_of_a_call(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    await agent.decide(call, edited_args={"order": "A7", "euro": 150})
    permitted = await agent.show(call, wait=20)
    assert (permitted["state"], permitted["args"]["euro"], permitted["edited_by"]) == ("permitted", 150, "Approver")
    assert (await agent.use(call)).json()["args"] == {"order": "A7", "euro": 150}
    assert (await agent.report(call)).json()["edited_by"] == "Approver"


async def test_edit_denied_by_a_rule_is_refused_with_the_rules_text(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    receipt = (await agent.decide(call, edited_args={"order": "A7", "euro": 2_000})).json()
    assert (receipt["status"], receipt["code"]) == ("refused", "not_allowed")
    assert "the change was rejected" in receipt["message"].lower()
    assert "`deny_if` is true" in receipt["message"]
    assert "You may not decide this" not in receipt["message"]
    assert (await agent.show(call))["state"] == "waiting"


@pytest.mark.row("C05")
async def test_denied_call_cannot_be_used(agent: CallRig) -> None:
    call = (await agent.propose(euro=200)).json()["id"]
    await agent.decide(call, verdict="denied", reason="not twice")
    denied = await agent.show(call, wait=20)
    told = (denied["state"], denied["source"], denied["reason"], denied["by"])
    assert told == ("denied", "human", "not twice", "approver")
    refused = await agent.use(call)
    assert (refused.status_code, refused.json()) == (409, {"code": "denied", "message": "not twice"})
    assert (await agent.report(call)).json()["code"] == "not_used"


async def test_withdrawal_while_the_gates_judge_ends_the_question(
    agent: CallRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The question is stored, and its turn is cancelled before it learns of it. Without `end_turn_questions` the
    # request stayed open until its deadline and accepted an approval. The server forwards a cancellation after most
    # of the workflow task timeout.
    monkeypatch.setattr(
        Client, "start_workflow", partialmethod(Client.start_workflow, task_timeout=timedelta(seconds=1))
    )
    stored: asyncio.Future[Question] = asyncio.get_running_loop().create_future()
    ask = Questions.ask

    async def ask_and_hang(*args: Any, **kwargs: Any) -> Question | None:
        question = await ask(*args, **kwargs)
        assert question is not None
        stored.set_result(question)
        await asyncio.Event().wait()
        return question

    monkeypatch.setattr(Questions, "ask", ask_and_hang)
    proposing = asyncio.create_task(agent.propose(euro=200))
    question = await stored
    call = TurnKey(question.tenant, question.session, question.turn)
    assert (await agent.withdraw(".".join(call))).json()["state"] == "denied"
    assert (await proposing).json()["state"] == "denied"
    assert (await agent.rig.request(question.id)).state == "cancelled"
    assert (await agent.decide(".".join(call))).json()["code"] == "cancelled"


@pytest.mark.row("C06")
async def test_withdrawn_call_cannot_be_used(agent: CallRig) -> None:
    waiting = (await agent.propose(euro=200)).json()["id"]
    assert (await agent.withdraw(waiting)).json()["source"] == "cancelled"
    assert (await agent.use(waiting)).json()["code"] == "denied"
    assert (await agent.decide(waiting)).json()["code"] == "cancelled"
    permitted = (await agent.propose()).json()["id"]
    assert (await agent.withdraw(permitted)).json()["state"] == "denied"
    assert (await agent.use(permitted)).status_code == 409
    used = (await agent.propose(use=True)).json()["id"]
    refused = await agent.withdraw(used)
    assert (refused.status_code, refused.json()["code"]) == (409, "used")
    assert (await agent.report(used)).json()["code"] == "ok"


@pytest.mark.row("C03")
async def test_one_of_fifty_concurrent_uses_gets_the_permit(agent: CallRig) -> None:
    call = (await agent.propose()).json()["id"]
    answers = await asyncio.gather(*(agent.use(call) for _ in range(50)))
    handed = [each for each in answers if each.status_code == 200]
    assert len(handed) == 1
    assert {each.json()["code"] for each in answers if each.status_code != 200} <= {"used", "unavailable"}
    assert (await agent.report(call)).json()["code"] == "ok"


async def test_same_attempt_gets_the_same_permit_again(agent: CallRig) -> None:
    call = (await agent.propose()).json()["id"]
    first, again = await agent.use(call, key="try-1"), await agent.use(call, key="try-1")
    assert first.json() == again.json()
    assert (await agent.use(call, key="try-2")).json()["code"] == "used"
    other = (await agent.propose()).json()["id"]
    assert (await agent.use(other, key="k" * 199 + "1")).status_code == 200
    assert (await agent.use(other, key="k" * 199 + "2")).json()["code"] == "used"


@pytest.mark.row("C07")
async def test_report_is_accepted_once(agent: CallRig) -> None:
    call = (await agent.propose()).json()["id"]
    assert (await agent.report(call)).json()["code"] == "not_used"
    await agent.use(call)
    assert (await agent.report(call, "execution_failed", "the bank is closed")).json()["code"] == "execution_failed"
    again = await agent.report(call, "execution_failed", "the bank is closed")
    assert (again.status_code, again.json()["result"]) == (200, "the bank is closed")
    other = await agent.report(call)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


async def test_large_result_is_kept_and_over_64_kib_refused(agent: CallRig) -> None:
    """The store holds it, so the history does not grow."""
    call = (await agent.propose(use=True)).json()["id"]
    assert (await agent.report(call, result="ä" * 40_000)).status_code == 413
    assert (await agent.report(call, result="ä" * 20_000)).json()["result"] == "ä" * 20_000


async def test_result_unsafe_in_json_is_refused_as_malformed(agent: CallRig) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    refused = await agent.report(call, result={"number": 2**60})
    assert (refused.status_code, refused.json()["code"]) == (422, "malformed")
    assert (await agent.report(call, result=str(2**60))).json()["code"] == "ok"


@pytest.mark.row("C08")
async def test_unreported_used_call_is_in_doubt(agent: CallRig) -> None:
    call = (await agent.propose(tool="quick", use=True)).json()["id"]
    ended = await _settled(agent, call)
    assert (ended["state"], ended["code"]) == ("ended", "in_doubt")
    late = await agent.report(call)
    reason = "the outcome is recorded as unknown, because it was not reported in time; this late report is filed"
    words = f"call `{call}`: {reason}"
    assert (late.status_code, late.json()) == (409, {"code": "conflict", "message": words})
    assert "in_doubt" in dict(await agent.record(call))


async def test_permit_with_a_ticket_of_another_attempt_is_in_doubt_and_its_turn_ends_normally(agent: CallRig) -> None:
    call = (await agent.propose(euro=60)).json()["id"]
    digest = (await agent.rig.request(approval_of(call))).digest
    turn = TurnKey(*call.split("."))
    await agent.decide(call)
    await agent.rig.deps.store.claim(
        ticket_key(digest, 1), workflow=turn.workflow_id, call="c1.1", tool="refund", owner="lost"
    )
    await agent.use(call, "another")
    ended = await _settled(agent, call)
    assert (ended["state"], ended["code"]) == ("ended", "in_doubt")
    assert (await agent.rig.turns.signoff.result(turn)).state == "complete"


async def test_forgotten_use_of_a_restored_store_is_in_doubt_for_every_later_attempt(
    client: Client, task_queue: str, tmp_path: Path
) -> None:
    async with (
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        call_rig(client, store, task_queue) as agent,
    ):
        call = (await agent.propose(euro=60)).json()["id"]
        await agent.decide(call)
        await store.run(lambda connection: add_restoration(connection, by="root"))
        for use in ("another", "another", "a third"):
            answer = await agent.use(call, use)
            assert answer.status_code != 200
            assert "args" not in answer.json()
        ended = await _settled(agent, call)
        assert (ended["state"], ended["code"]) == ("ended", "in_doubt")


async def test_approvers_are_asked_about_an_unreported_call_if_its_tool_requires_it(agent: CallRig) -> None:
    call = (await agent.propose(tool="asked", use=True)).json()["id"]
    view = await agent.rig.turns.waiting(TurnKey(*call.split(".")))
    assert view.calls[0].approval is not None
    assert view.calls[0].approval.kind == "in_doubt"
    await agent.decide(call, verdict="happened", result="seen in the ledger")
    ended = await _settled(agent, call)
    assert (ended["state"], ended["code"], ended["decided_by"]) == ("ended", "ok", "Approver")


async def test_frozen_tenant_starts_and_uses_no_call(client: Client, store: Store, task_queue: str) -> None:
    async with call_rig(client, store, task_queue) as agent:
        call = (await agent.propose()).json()["id"]
        frozen = await agent.http.post("/v1/freezes", json={"reason": "incident"})
        assert frozen.status_code == 200, frozen.text
        refused = await agent.use(call)
        assert (refused.status_code, refused.json()["code"]) == (409, "frozen")
        assert (await agent.propose()).json()["code"] == "frozen"


@pytest.mark.parametrize("change", [{"euro": 9_400}, {"order": "B9"}])
async def test_permit_with_changed_arguments_is_not_released(
    agent: CallRig, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = (await agent.propose()).json()["id"]
    honest = CallClient.use

    async def lying(self: CallClient, key: TurnKey, use: str) -> UseReply | None:
        reply = await honest(self, key, use)
        assert reply is not None
        assert reply.permit is not None
        args = Content(inline={**reply.permit.args.inline, **change})
        return UseReply(permit=replace(reply.permit, args=args))

    monkeypatch.setattr(permit_service.CallClient, "use", lying)
    refused = await agent.use(call)
    assert (refused.status_code, refused.json()["code"]) == (409, "stale")


async def test_gateway_with_another_definition_releases_the_call_that_the_worker_permitted(agent: CallRig) -> None:
    """During a deploy the gateway may be newer or older. A refusal there would lose a used call."""
    newer = refund_tool(description="Refund an order to whoever paid it")
    for tools in ([newer], []):
        catalog = catalog_of(tools, actors=list(agent.rig.deps.catalog.actors.values()), people=PEOPLE)
        other = CallRig(agent.rig.beside(catalog=catalog))
        used = (await other.propose(use=True)).json()
        assert (used["state"], used["args"]) == ("used", {"order": "A7", "euro": 20})
        assert (await other.report(used["id"])).json()["code"] == "ok"


async def test_permit_of_another_call_is_not_released(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    other, call = [(await agent.propose()).json()["id"] for _ in range(2)]
    stolen = await CallClient(agent.rig.deps.client).use(TurnKey(*other.split(".")), "another")
    assert stolen is not None
    assert stolen.permit is not None

    async def lying(self: CallClient, key: TurnKey, use: str) -> UseReply | None:
        return stolen

    monkeypatch.setattr(permit_service.CallClient, "use", lying)
    assert (await agent.use(call)).json()["code"] == "stale"


async def _settled(agent: CallRig, call: str) -> dict[str, Any]:
    await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))
    return await agent.show(call)
