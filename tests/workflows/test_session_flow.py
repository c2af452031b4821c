import asyncio

import pytest
from session_rig import PAY, message, model, react, talk, words
from turn_fixtures import Ledger, TurnRig, no, pay_tool, query_workflow, yes

from signoff.contracts import names
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.store.questions.request_lists import RequestLists
from signoff.testing.scripted_model import last_user_text


async def test_messages_are_answered_in_order_with_earlier_messages(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], model()) as turns:
        session = talk(turns)
        for text in ("one", "two", "three"):
            receipt = await session.say(text, text)
            assert (receipt.status, receipt.turn) == ("accepted", text)
        assert await session.answer("three") == "three after one | one | two | two after one | one"
        view = await turns.sessions.session(session.key)
        turn = await turns.signoff.view(session.turn_key("two"))
    assert [turn.turn for turn in view.turns] == ["one", "two", "three"]
    assert [turn.earlier for turn in view.turns] == [0, 2, 4]
    assert (view.actor, view.queued, view.refusals) == ("desk", (), 0)
    assert [words(each) for each in turn.messages[:3]] == ["one", "one", "two"]


async def test_messages_are_answered_while_the_first_turn_waits_for_approval(turn_rig: TurnRig) -> None:
    ledger = Ledger()
    async with turn_rig.running([pay_tool(ledger)], model()) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await session.say("hello", "b")
        still = "(I am still at this: it waits for people to decide. I will not begin it a second time.)"
        assert await session.answer("b") == f"hello after pay | {still}"
        await session.say("more", "c")
        await session.answer("c")
        assert ledger.rows == []
        receipt = await turns.signoff.decide(yes(session.turn_key("a")))
        assert receipt.status == "accepted"
        assert await session.answer("a") == "pay: ok"
        messages = await query_workflow(session.handle, names.TRANSCRIPT, result_type=list)
    assert len(ledger.rows) == 1
    assert [part["text"]["inline"] for each in messages for part in each["parts"]][:3] == ["pay", "pay: ok", "hello"]


async def test_denied_call_is_denied_at_once_in_later_turns_of_the_session(turn_rig: TurnRig) -> None:
    # The same call in the next turn asks no approver and names the first decision. Before the gates knew of it, its
    # question stayed in the store until its deadline, although no turn would hear an answer.
    async with turn_rig.running([pay_tool(Ledger())], model()) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await turns.signoff.decide(no(session.turn_key("a"), reason="not this month"))
        assert await session.answer("a") == "pay: denied"
        await session.say("pay again", "b")
        assert await session.answer("b") == "pay: denied"
        result = await turns.signoff.result(session.turn_key("b"))
        asked = await RequestLists(turn_rig.store).of_turns([session.turn_key("a"), session.turn_key("b")])
    denied = result.calls[0].denied
    assert denied is not None
    assert (denied.source, denied.reason, denied.decided_by) == ("repeat", "not this month", "approver")
    assert denied.approval_id == f"main.{session.key.session}.a.c1.1"
    assert PAY[0] == denied.tool
    assert list(asked) == [session.turn_key("a")]


@pytest.mark.parametrize("door", ["update", "signal"])
async def test_repeated_message_is_accepted_once_by_update_or_signal(turn_rig: TurnRig, door: str) -> None:
    async with turn_rig.running([], model()) as turns:
        session = talk(turns)
        await session.say("one", "a")
        if door == "signal":
            await session.handle.signal(names.SAY, message("one", "a").model_dump(mode="json"))
            await session.handle.signal(names.SAY, message("two", "a").model_dump(mode="json"))
        else:
            again, other = await session.say("one", "a"), await session.say("two", "a")
            assert (again.status, again.code, again.turn) == ("accepted", "duplicate", "a")
            assert (other.status, other.code) == ("refused", "conflict")
        view = await session.until(lambda view: view.refusals == 1)
        await session.answer("a")
    assert [turn.turn for turn in view.turns] + [each.message_id for each in view.queued] == ["a"]


class Slow:
    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def complete(self, request: CompletionRequest) -> Completion:
        if last_user_text(request) == "slow":
            await self.go.wait()
        return react(request)


async def test_message_waits_for_a_running_turn_only_for_a_limited_time(turn_rig: TurnRig) -> None:
    driver = Slow()
    async with turn_rig.running([], driver) as turns:
        session = talk(turns)
        await session.begin(patience_seconds=1.5)
        await session.say("slow", "a")
        await session.say("next", "b")
        before = await session.until(lambda view: bool(view.turns))
        assert ([turn.turn for turn in before.turns], [each.message_id for each in before.queued]) == (["a"], ["b"])
        assert await session.answer("b") == "next after slow | (I am still at this. I will not begin it a second time.)"
        driver.go.set()
        assert await session.answer("a") == "slow"
