import pytest
from session_rig import model, react, talk, words
from some import some
from turn_fixtures import Ledger, TurnRig, catalog_of, pay_tool, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.limits import MAX_TURNS_PER_MESSAGE
from signoff.contracts.session_messages import turn_of
from signoff.registry.actor import Actor
from signoff.testing.scripted_model import ScriptedModel, last_user_text, respond

ACTORS = [Actor(name="desk", model="first"), Actor(name="bank", model="second", tools=())]


def text_read(request: CompletionRequest) -> str:
    return " | ".join(words(message) for message in request.messages)


def passing(request: CompletionRequest) -> Completion:
    text = last_user_text(request)
    if "money" in text:
        return respond("The bank will tell you.", "passed", passTo="bank")
    if text.startswith("news"):
        return respond(f"Got {text}")
    return respond("I wait for news.", "awaiting")


@pytest.mark.row("B59", "B61")
async def test_passed_turn_continues_with_the_next_actor(turn_rig: TurnRig) -> None:
    driver = ScriptedModel(
        lambda request: passing(request) if request.model == "first" else respond(text_read(request))
    )
    async with turn_rig.running(catalog_of([pay_tool(Ledger())], actors=ACTORS), driver) as turns:
        session = talk(turns)
        await session.say("money please", "a")
        assert await session.answer("a-2") == "money please | The bank will tell you."
        await session.say("thanks", "b")
        await session.answer("b")
        view = await turns.sessions.session(session.key)
    assert [(turn.turn, turn.actor, turn.state, turn.message_id) for turn in view.turns] == [
        ("a", "desk", "passed", "a"),
        ("a-2", "bank", "complete", "a"),
        ("b", "bank", "complete", "b"),
    ]
    assert view.actor == "bank"


async def test_message_passed_too_often_ends_with_an_error(turn_rig: TurnRig) -> None:
    def ping(request: CompletionRequest) -> Completion:
        if last_user_text(request) == "stop":
            return respond("stopped")
        return respond("you", "passed", passTo="bank" if request.model == "first" else "desk")

    async with turn_rig.running(catalog_of([], actors=ACTORS), ScriptedModel(ping)) as turns:
        session = talk(turns)
        await session.say("go", "a")
        last = turn_of("a", MAX_TURNS_PER_MESSAGE - 1)
        turn = await session.turn(last, "passed")
        assert some(turn.error).code == "passed_too_often"
        await session.say("stop", "b")
        assert await session.answer("b") == "stopped"


@pytest.mark.row("B65")
async def test_late_result_joins_the_turn_that_waits_for_approval(turn_rig: TurnRig) -> None:
    read: list[str] = []

    def driver(request: CompletionRequest) -> Completion:
        read.append(text_read(request))
        return react(request) if len(read) == 1 else respond("done")

    tool = pay_tool(Ledger())
    async with turn_rig.running([tool], ScriptedModel(driver)) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        first = await session.add("a", "the rate is 3 %", "i1")
        again = await session.add("a", "the rate is 3 %", "i1")
        assert (first.status, first.turn, again.code) == ("accepted", "a", "duplicate")
        await session.say("hello", "b")
        await session.answer("b")
        await turns.signoff.decide(yes(session.turn_key("a")))
        assert await session.answer("a") == "done"
        view = await turns.sessions.session(session.key)
        entries = [words(each) for each in await turns.signoff.transcript(session.turn_key("a"))]
    assert [turn.turn for turn in view.turns] == ["a", "b"]
    assert entries.count("the rate is 3 %") == 1
    assert "3 %" not in read[1]
    assert read[2].endswith("the rate is 3 %")


@pytest.mark.row("B59", "B65")
async def test_late_result_of_an_answered_turn_starts_its_own_actor(turn_rig: TurnRig) -> None:
    driver = ScriptedModel(
        lambda request: passing(request) if request.model == "first" else respond(text_read(request))
    )
    async with turn_rig.running(catalog_of([], actors=ACTORS), driver) as turns:
        session = talk(turns)
        await session.say("report", "a")
        assert (await session.turn("a", "awaiting")).error is None
        await session.say("and this", "b", actor="bank")
        await session.answer("b")
        receipt = await session.add("a", "news: it is there")
        assert receipt.turn == "a-2"
        assert await session.answer("a-2") == "Got news: it is there"
        view = await turns.sessions.session(session.key)
        unknown = await session.add("nobody", "news")
    assert [(turn.turn, turn.actor) for turn in view.turns] == [("a", "desk"), ("b", "bank"), ("a-2", "desk")]
    assert (unknown.status, unknown.code) == ("refused", "unknown")


async def test_terminated_turn_does_not_block_its_session(turn_rig: TurnRig) -> None:
    async with turn_rig.running([pay_tool(Ledger())], model()) as turns:
        session = talk(turns)
        await session.say("pay", "a")
        await session.turn("a", "waiting")
        await session.add("a", "late", "i1")
        await turn_rig.client.get_workflow_handle(session.turn_key("a").workflow_id).terminate("by hand")
        turn = await session.turn("a", "error")
        assert some(turn.error).code == "stopped"
        answer = await session.answer("a-2")
    assert answer.startswith("late after pay | (This ended without an answer: the turn was stopped from outside.)")


async def test_turn_with_unknown_actor_fails_and_the_next_message_is_answered(turn_rig: TurnRig) -> None:
    async with turn_rig.running([], model()) as turns:
        session = talk(turns)
        await session.say("one", "a", actor="nobody")
        turn = await session.turn("a", "error")
        assert turn.error is not None
        assert turn.error.code == "config_error"
        assert "`nobody`" in turn.error.message
        await session.say("two", "b", actor="desk")
        assert (await session.answer("b")).startswith("two after one | (This ended without an answer")


async def test_answer_contains_its_parts(turn_rig: TurnRig) -> None:
    parts = [{"type": "citation", "content": "page 3"}, {"type": "domain-data", "content": {"n": [1, 2]}}]
    driver = ScriptedModel(lambda request: respond(text_read(request), parts=parts))
    async with turn_rig.running([], driver) as turns:
        session = talk(turns)
        await session.say("one", "a")
        await session.say("two", "b")
        turn = await session.turn("b", "complete")
        result = await turns.signoff.result(session.turn_key("b"))
    assert result.parts == turn.parts
    assert [(part.type, part.content.inline) for part in turn.parts] == [
        ("response", "one | one | two"),
        ("citation", "page 3"),
        ("domain-data", {"n": [1, 2]}),
    ]
