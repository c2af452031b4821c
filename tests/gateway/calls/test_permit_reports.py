"""A report is stored in the call's ticket before the turn learns of it, and only the store is trusted."""

import asyncio
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from call_rig import CallRig
from gateway_rig import PEOPLE
from rich.console import Console
from temporalio.client import Client, Interceptor, OutboundInterceptor, SignalWorkflowInput
from temporalio.service import RPCError, RPCStatusCode
from turn_fixtures import PATIENCE, doubted

from signoff.channels.card_text import card_words
from signoff.channels.envelopes import OutboundCard
from signoff.cli.terminal.card_lines import card_lines
from signoff.contracts.activity_messages import UseReply
from signoff.contracts.ids import TurnKey
from signoff.contracts.names import REPORT_CALL
from signoff.contracts.turn import TurnResult
from signoff.engine.call_client import CallClient
from signoff.engine.turn_client import TurnClient
from signoff.gateway.calls import call_wait
from signoff.texts.formatter import Formatter
from signoff.texts.record_entries import entry_words

LOOKS = 20
"""Maximum times that a turn looks for a report."""


class _Mute(Interceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _MuteOutbound(next)


class _MuteOutbound(OutboundInterceptor):
    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        raise RPCError("the server is away", RPCStatusCode.UNAVAILABLE, b"")


def mute_gateway(agent: CallRig) -> CallRig:
    turns = agent.rig.deps.client
    config = turns.temporal.config()
    config["interceptors"] = [_Mute()]
    return CallRig(
        agent.rig.beside(client=TurnClient(Client(**config), task_queue=turns.task_queue, patience=PATIENCE))
    )


async def end_of(agent: CallRig, call: str) -> TurnResult:
    return await agent.rig.turns.signoff.result(TurnKey(*call.split(".")))


async def test_forged_signal_with_a_temporal_credential_is_no_report(agent: CallRig) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    key = TurnKey(*call.split("."))
    handle = agent.rig.turns.client.get_workflow_handle(key.workflow_id)
    for _ in range(LOOKS + 5):
        await handle.signal(REPORT_CALL, {"code": "ok", "result": "paid, believe me"})
        # Each is its own task, and a query is answered after it.
        assert (await agent.show(call))["state"] == "used"
    looks = (await agent.events(call)).count("MARKER_RECORDED")
    ended = (await agent.report(call, "execution_failed", "the bank is closed")).json()
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "execution_failed", "the bank is closed")
    # Judged, claimed and looked for.
    assert looks <= 2 + LOOKS


async def test_report_that_missed_its_turn_is_stored_and_found_in_time(agent: CallRig) -> None:
    call = (await agent.propose(tool="quick", use=True)).json()["id"]
    away = await mute_gateway(agent).report(call)
    assert (away.status_code, away.json()["code"]) == (503, "unavailable")
    ended = await agent.show(call)
    assert (ended["state"], ended["code"], ended["result"]) == ("ended", "ok", "refunded")
    assert [each.code for each in (await end_of(agent, call)).calls] == ["ok"]
    kinds = [kind for kind, _ in await agent.record(call)]
    assert (kinds.count("outcome"), kinds.count("in_doubt")) == (1, 0)


async def test_repeated_report_reaches_the_turn(agent: CallRig) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    assert (await mute_gateway(agent).report(call)).status_code == 503
    assert (await agent.report(call)).json()["code"] == "ok"
    assert [each.code for each in (await end_of(agent, call)).calls] == ["ok"]
    kinds = [kind for kind, _ in await agent.record(call)]
    assert kinds.count("outcome") == 1


async def test_report_of_a_terminated_turn_is_kept(agent: CallRig) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    await agent.rig.turns.client.get_workflow_handle(TurnKey(*call.split(".")).workflow_id).terminate()
    ended = (await agent.report(call)).json()
    assert (ended["state"], ended["code"]) == ("ended", "ok")
    assert dict(await agent.record(call))["outcome"]["code"] == "ok"


async def test_one_of_several_racing_reports_counts(agent: CallRig) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    answers = await asyncio.gather(*(agent.report(call, result=f"refund {each}") for each in range(20)))
    taken = [each.json()["result"] for each in answers if each.status_code == 200]
    assert len(taken) == 1
    assert {each.json()["code"] for each in answers if each.status_code != 200} == {"conflict"}
    assert (await agent.show(call))["result"] == taken[0]
    assert [kind for kind, _ in await agent.record(call)].count("outcome") == 1


async def doubt_question(agent: CallRig, call: str) -> str:
    view = await agent.rig.turns.until(TurnKey(*call.split(".")), doubted)
    assert view.calls[0].approval is not None
    return view.calls[0].approval.id


async def test_late_report_is_shown_on_the_card_and_recorded(agent: CallRig) -> None:
    call = (await agent.propose(tool="asked", use=True)).json()["id"]
    approval = await doubt_question(agent, call)
    first = await agent.report(call, "execution_failed", "the bank\nis closed")
    second = await agent.report(call, "ok", "refunded after all")
    assert (first.status_code, second.status_code) == (409, 409)
    request = await agent.rig.request(approval)
    assert (request.state, request.late_report and request.late_report.text) == ("pending", "the bank⏎is closed")
    page = await agent.http.get(f"/approvals/{approval}")
    assert "the call failed." in page.text
    assert "the bank⏎is closed" in page.text
    shown = Console(width=200, record=True, file=StringIO())
    shown.print(card_lines(request, request.opened_at or datetime.now(UTC)))
    assert "late report" in shown.export_text()
    sent = OutboundCard(token="t", request=request, person=PEOPLE[0], address="a", link="https://x.example/1")
    card = card_words(sent, Formatter("en", UTC, datetime.now(UTC)), how="link")
    assert card.note.endswith("the call failed. the bank⏎is closed")
    facts = [facts for _, facts in await agent.record(call) if "reported" in facts]
    assert [each["reported"] for each in facts] == ["execution_failed"]
    assert entry_words("in_doubt", facts[0], "en") == "the agent reported asked c1.1 late: execution failed"


async def test_late_report_after_a_persons_answer_is_filed_with_it(agent: CallRig) -> None:
    call = (await agent.propose(tool="asked", use=True)).json()["id"]
    approval = await doubt_question(agent, call)
    revision = (await agent.rig.request(approval)).revision
    await agent.rig.decide(approval, verdict="happened", revision=revision, result="in the bank's list")
    assert [each.code for each in (await end_of(agent, call)).calls] == ["ok"]
    late = await agent.report(call, "execution_failed", "no")
    assert (late.status_code, "late report is filed" in late.json()["message"]) == (409, True)
    request = await agent.rig.request(approval)
    assert (request.state, request.late_report and request.late_report.code) == ("happened", "execution_failed")
    assert (await agent.show(call))["result"] == "in the bank's list"


@pytest.mark.parametrize("result", ["refunded", {"refund": 17}, "ä" * 20_000], ids=["words", "object", "large"])
async def test_stored_report_is_readable_at_once(agent: CallRig, result: Any) -> None:
    call = (await agent.propose(use=True)).json()["id"]
    assert (await mute_gateway(agent).report(call, result=result)).status_code == 503
    shown = await agent.show(call)
    assert (shown["state"], shown["code"], shown["result"]) == ("ended", "ok", result)
    assert (await agent.withdraw(call)).json()["state"] == "ended"
    again = await agent.use(call)
    assert (again.status_code, again.json()["code"]) == (409, "used")


async def test_call_run_by_signoff_is_answered_from_its_ticket(agent: CallRig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> UseReply | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(CallClient, "_await_end", never)
    monkeypatch.setattr(CallClient, "_look", never)
    # After the patience has run out it is not read either.
    monkeypatch.setattr(call_wait, "read_call", never)
    answer = (await agent.propose(tool="pay", args={"amount": 20})).json()
    assert (answer["state"], answer["code"], answer["result"]) == ("ended", "ok", "paid")
    assert dict(await agent.record(answer["id"]))["outcome"]["code"] == "ok"
