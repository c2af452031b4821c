import asyncio
from pathlib import Path

import pytest
from killable_worker import killable
from polling import pauses
from raw_turns import RawTurnClient
from session_rig import Talk, message, model, talk
from temporalio.api.common.v1 import Payload, Payloads, WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client
from turn_fixtures import Ledger, RunningTurns, TurnRig, pay_tool, yes

from signoff.contracts import names
from signoff.contracts.errors import ServerUnavailable
from signoff.contracts.person import Principal
from signoff.contracts.session_messages import SessionReceipt
from signoff.temporal.embedded_server import ServerHandle

SMALL_RUN = 60


async def _deliver(session: Talk, text: str, door: str) -> str:
    if door == "signal":
        await session.handle.signal(names.SAY, message(text, text).model_dump(mode="json"))
        return "sent"
    receipt = await session.say(text, text)
    return receipt.code or receipt.status


async def test_storm_of_duplicates_over_many_runs_gives_one_turn_per_message(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], model()) as turns:
        session = talk(turns)
        await session.begin(events_per_run=SMALL_RUN)
        texts = [f"n{number}" for number in range(16)]
        doors = ("update", "signal", "update", "signal")
        answers: list[str] = []
        for start in range(0, len(texts), 4):
            storm = [_deliver(session, text, door) for door in doors for text in texts[start : start + 4]]
            answers += await asyncio.gather(*storm)
            await session.until(lambda view: len(view.queued) <= 2)
        view = await session.until(lambda view: sum(turn.state == "complete" for turn in view.turns) == len(texts))
        late = [await session.say(text, text) for text in texts]
        other = await session.say("something else", "n0")
        runs = await session.runs()
    assert sorted(turn.turn for turn in view.turns) == sorted(texts)
    assert set(answers) <= {"accepted", "duplicate", "sent", "pending"}
    assert {receipt.code for receipt in late} == {"duplicate"}
    assert (other.status, other.code) == ("refused", "conflict")
    assert runs >= 4


@pytest.mark.row("B68", "N25")
async def test_waiting_turn_survives_the_runs_of_its_session(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running([pay_tool(ledger)], model()) as turns:
        session = talk(turns)
        await session.begin(events_per_run=SMALL_RUN)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await session.add("a", "a late word", "i1")
        for number in range(8):
            await session.say(f"n{number}", f"n{number}")
        await session.answer("n7")
        assert await session.runs() >= 2
        assert (await turns.signoff.decide(yes(session.turn_key("a")))).status == "accepted"
        assert await session.answer("a") == "pay: ok"
        view = await turns.sessions.session(session.key)
        again = await session.add("a", "a late word", "i1")
    assert [turn.turn for turn in view.turns] == ["a", *(f"n{number}" for number in range(8))]
    assert again.code == "duplicate"
    assert len(ledger.rows) == 1


async def test_killed_worker_loses_no_message_and_no_turn(
    server: ServerHandle, tmp_path: Path, turn_rig: TurnRig
) -> None:
    address, url, ledger = server.options.address, f"sqlite:///{tmp_path}/signoff.db", tmp_path / "ledger"
    bare = RunningTurns(
        RawTurnClient(turn_rig.client, task_queue=turn_rig.task_queue),
        turn_rig.client,
        turn_rig.store,
        turn_rig.task_queue,
        deps=None,
    )  # type: ignore[arg-type]
    session = talk(bare)
    async with killable(address, url, turn_rig.task_queue, ledger) as worker:
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        worker.kill()
        await worker.wait()
    receipt = await said(session, "hello", "b")
    assert (receipt.status, receipt.turn) == ("pending", "b")
    assert (await said(session, "hello", "b")).status == "pending"
    async with killable(address, url, turn_rig.task_queue, ledger):
        assert (await session.answer("b")).startswith("hello after pay | (I am still at this")
        assert (await bare.signoff.decide(yes(session.turn_key("a")))).status in ("accepted", "pending")
        assert await session.answer("a") == "pay: ok"
        view = await bare.sessions.session(session.key)
    assert [turn.turn for turn in view.turns] == ["a", "b"]
    assert len(ledger.read_text().splitlines()) == 1


async def said(session: Talk, text: str, message_id: str) -> SessionReceipt:
    """Say it again while a busy server does not answer, as clients do."""
    async with asyncio.timeout(60):
        for pause in pauses():
            try:
                return await session.say(text, message_id)
            except ServerUnavailable:
                await asyncio.sleep(pause)
    raise AssertionError


def _payload(text: bytes, encoding: bytes = b"json/plain") -> Payload:
    return Payload(metadata={"encoding": encoding}, data=text)


GARBAGE = {
    "no argument": [],
    "two arguments": [_payload(b"{}"), _payload(b"{}")],
    "null": [_payload(b"null")],
    "a string": [_payload(b'"hello"')],
    "an empty object": [_payload(b"{}")],
    "bytes": [_payload(b"\x00\xff", b"binary/plain")],
    "an unknown encoding": [_payload(b"{}", b"cipher/aes")],
    "broken json": [_payload(b'{"id": ')],
    "a lone surrogate": [_payload(b'{"turn": "\\ud800", "state": "complete", "id": "\\ud800"}')],
    "nan": [_payload(b'{"turn": "nobody", "state": "complete", "parts": [{"content": {"inline": NaN}}]}')],
    "deep nesting": [
        _payload(
            b'{"turn": "a", "state": "complete", "parts": [{"content": {"inline": ' + b"[" * 150 + b"]" * 150 + b"}}]}"
        )
    ],
    "an unknown turn": [_payload(b'{"turn": "nobody", "state": "complete"}')],
    "an unknown state": [_payload(b'{"turn": "a", "state": "done"}')],
}


async def test_malformed_signals_cannot_wedge_a_session_or_its_turns(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], model()) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        turn = session.turn_key("a").workflow_id
        for name in (names.SAY, names.INJECT, names.TURN_WAITS, names.TURN_ENDED):
            for payloads in GARBAGE.values():
                await _signal(turn_rig.client, session.key.workflow_id, name, payloads)
        for payloads in GARBAGE.values():
            await _signal(turn_rig.client, turn, names.INJECT, payloads)
        await session.say("hello", "b")
        await session.answer("b")
        await turns.signoff.decide(yes(session.turn_key("a")))
        assert await session.answer("a") == "pay: ok"
        view = await turns.sessions.session(session.key)
    # A payload of unknown encoding never reaches a handler, and `turn_waits` accepts payloads that name turn `a`.
    assert view.refusals >= 4 * (len(GARBAGE) - 3)
    assert [each.turn for each in view.turns] == ["a", "b"]


async def test_malformed_messages_are_refused_with_the_reason(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], model()) as turns:
        session = talk(turns)
        huge = await session.say("é" * 40_000, "a")
        deep: object = "x"
        for _ in range(150):
            deep = [deep]
        nested = await session.say("hello", "b", context={"deep": deep})
        lone = await session.say("\ud800", "c")
        stranger = await turns.sessions.say(talk(turns).key, message("hello", "d"))
        reserved = await session.say("hello", "e-2")
        await session.say("hello", "e")
        other = await session.say("pay me", "f", principals=(Principal(user="mallory"),))
        view = await session.until(lambda view: len(view.turns) == 2)
    assert [(each.status, each.code) for each in (huge, nested, lone, stranger)] == [("refused", "malformed")] * 4
    assert "at most" in huge.message
    assert "deeper" in nested.message
    assert "`actor`" in stranger.message
    assert reserved.status == "accepted"
    assert (other.status, other.code) == ("refused", "not_allowed")
    assert view.owner == "guest"
    assert [turn.turn for turn in view.turns] == ["e-2", "e"]


async def _signal(client: Client, workflow_id: str, name: str, payloads: list[Payload]) -> None:
    await client.workflow_service.signal_workflow_execution(
        SignalWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
            signal_name=name,
            input=Payloads(payloads=payloads),
        )
    )
