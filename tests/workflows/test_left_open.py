import asyncio
import contextlib

import pytest
from session_rig import Talk, talk, words
from turn_fixtures import (
    ApprovalPolicy,
    Ledger,
    RunningTurns,
    TurnRig,
    catalog_of,
    no,
    pay_tool,
    withdrawn,
    yes,
)

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.errors import NotFound, ServerUnavailable
from signoff.contracts.ids import show_code
from signoff.contracts.message import ResultPart
from signoff.registry.actor import Actor
from signoff.registry.catalog import Catalog
from signoff.testing.scripted_model import ScriptedModel, calls, respond

ONE, TWO = ("pay", {"amount": 1}), ("pay", {"amount": 2})


def _catalog(ledger: Ledger) -> Catalog:
    actor = Actor(name="desk", model="scripted", leave_open=True)
    return catalog_of([pay_tool(ledger, ApprovalPolicy(while_waiting="continue"))], actors=[actor])


def _react(request: CompletionRequest) -> Completion:
    newest = request.messages[-1]
    if newest.role == "tool":
        late = [part for part in newest.parts if isinstance(part, ResultPart) and part.late]
        return respond(" and ".join(f"{part.call} {part.type}" for part in late) or "asked for it")
    text = words(newest)
    if text.startswith("pay"):
        return calls(*((ONE, TWO)[: int(text.split()[1])]))
    return respond(text)


async def _told_after(turns: RunningTurns, session: Talk) -> list[str]:
    texts: list[str] = []
    for turn in (await turns.sessions.session(session.key)).turns[1:]:
        # A session lists a turn a moment before the server has it.
        with contextlib.suppress(NotFound, ServerUnavailable):
            own = (await turns.signoff.transcript(session.turn_key(turn.turn)))[turn.earlier :]
            texts += [words(message) for message in own if message.role == "user"]
    return texts


@pytest.mark.row("B65")
async def test_outcome_after_the_turns_end_starts_a_new_turn(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(_catalog(ledger), ScriptedModel(_react)) as turns:
        session = talk(turns)
        await session.say("pay 1", "a")
        assert await session.answer("a") == "asked for it"
        key = session.turn_key("a")
        ended = await turns.signoff.view(key)
        assert ended.result is not None
        assert (ended.state, [call.code for call in ended.result.calls]) == ("complete", ["waiting"])
        assert (await session.turn("a", "complete")).left_open == 1
        await session.say("hello", "b")
        assert await session.answer("b") == "hello"
        code = show_code((await turns.question(key)).code)
        assert (await turns.signoff.decide(yes(key))).status == "accepted"
        page_text = f"Outcome of c1.1 (`pay`), which waited for approval, {code}: ToolResult. paid"
        assert await session.answer("a-2") == page_text
        view = await turns.sessions.session(session.key)
        result = await turns.signoff.result(key)
        await turns.replays(key)
    # The outcome is marked as late, so that pages do not show it as the requester's words.
    assert [[message.late for message in turn.messages] for turn in view.turns] == [[False], [False], [True]]
    assert [(turn.turn, turn.left_open) for turn in view.turns] == [("a", 0), ("b", 0), ("a-2", 0)]
    assert (result.text, [call.code for call in result.calls]) == ("asked for it", ["ok"])
    assert len(ledger.rows) == 1


async def test_concurrent_outcomes_reach_the_session_once_each(turn_rig: TurnRig, ledger: Ledger) -> None:
    async with turn_rig.running(_catalog(ledger), ScriptedModel(_react)) as turns:
        session = talk(turns)
        await session.say("pay 2", "a")
        await session.turn("a", "complete")
        key = session.turn_key("a")
        await asyncio.gather(turns.signoff.decide(yes(key, "c1.2")), turns.signoff.decide(no(key, "c1.1")))
        result = await turns.signoff.result(key)
        # An outcome that arrives during the other's turn is added to that turn or starts the next one.
        while len(await _told_after(turns, session)) < 2:
            await asyncio.sleep(0.05)
        await session.until(lambda seen: all(turn.state == "complete" for turn in seen.turns))
        texts = await _told_after(turns, session)
        await turns.replays(key)
    assert sorted(text.split()[2] for text in texts) == ["c1.1", "c1.2"]
    assert [call.code for call in result.calls] == ["denied", "ok"]
    assert '"type": "ToolDenied"' in next(text for text in texts if text.startswith("Outcome of c1.1"))
    assert len(ledger.rows) == 1


async def test_outcome_before_the_end_is_answered_in_the_same_turn(turn_rig: TurnRig) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def held(request: CompletionRequest) -> Completion:
        newest = request.messages[-1]
        late = any(isinstance(part, ResultPart) and part.late for part in newest.parts)
        if newest.role == "tool" and not late:
            asked.set()
            await goes_on.wait()
        return _react(request)

    async with turn_rig.running(_catalog(Ledger()), ScriptedModel(held)) as turns:
        session = talk(turns)
        await session.say("pay 1", "a")
        await asked.wait()
        key = session.turn_key("a")
        await turns.signoff.decide(no(key))
        await turns.until(key, lambda view: view.calls[0].outcome is not None)
        goes_on.set()
        assert await session.answer("a") == "c1.1 ToolDenied"
        await turns.signoff.result(key)
        view = await turns.sessions.session(session.key)
    assert [turn.turn for turn in view.turns] == ["a"]


async def test_turn_without_session_waits_for_its_outcomes(turn_rig: TurnRig) -> None:
    script = [calls(ONE), respond("asked"), respond("paid")]
    async with turn_rig.running(_catalog(Ledger()), script) as turns:
        key = await turns.start()
        await turns.until(key, lambda view: sum(each.role == "assistant" for each in view.messages) == 2)
        await turns.signoff.decide(yes(key))
        assert (await turns.signoff.result(key)).text == "paid"


@pytest.mark.parametrize("end", ["withdrawn", "cancelled"])
async def test_request_withdrawn_after_the_turns_end_is_reported(turn_rig: TurnRig, end: str) -> None:
    async with turn_rig.running(_catalog(Ledger()), ScriptedModel(_react)) as turns:
        session = talk(turns)
        await session.say("pay 1", "a")
        await session.turn("a", "complete")
        key = session.turn_key("a")
        if end == "withdrawn":
            await turns.signoff.withdraw(withdrawn(key))
        else:
            await turns.client.get_workflow_handle(key.workflow_id).cancel()
        assert '"source": "cancelled"' in await session.answer("a-2")
        result = await turns.signoff.result(key)
        await turns.replays(key)
    assert (result.state, result.text, [call.code for call in result.calls]) == ("complete", "asked for it", ["denied"])
