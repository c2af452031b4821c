import pytest
from session_rig import talk, words
from turn_fixtures import Ledger, TurnRig, pay_tool, yes

from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.content import Content
from signoff.contracts.errors import NotFound
from signoff.contracts.message import ResultPart
from signoff.registry.tool import Tool
from signoff.testing.scripted_model import ScriptedModel, calls, last_user_text, respond

ONE = {"amount": 1}


def export() -> Tool:
    ledger = Ledger()
    given = ledger.handler("export", lambda args, ctx: ctx.hand_off())
    schema = {"type": "object", "required": ["rows"]}
    return pay_tool(ledger, False, name="export", effect="", handler=given, output_schema=schema)


def waiting(request: CompletionRequest) -> Completion:
    text = last_user_text(request)
    if text.startswith("Result of"):
        return respond(f"It came. {text}")
    entries = [part for each in request.messages for part in each.parts if isinstance(part, ResultPart)]
    return respond("It is on its way.", "awaiting") if entries else calls(("export", ONE))


@pytest.mark.row("B43")
async def test_late_result_continues_an_awaiting_turn(turn_rig: TurnRig) -> None:
    async with turn_rig.running([export()], ScriptedModel(waiting)) as turns:
        session = talk(turns)
        await session.say("export all", "a")
        await session.turn("a", "awaiting")
        (outcome,) = (await turns.signoff.result(session.turn_key("a"))).calls
        event = f"main.{session.key.session}.a.c1.1"
        assert (outcome.code, outcome.structured) == ("ok", Content(inline={"event_id": event}))
        assert f"handed the work off as `{event}`" in str(outcome.value.inline)
        receipt = await session.add("a", f"Result of `{event}`: 42 rows", "r1")
        assert (receipt.status, receipt.turn) == ("accepted", "a-2")
        assert await session.answer("a-2") == f"It came. Result of `{event}`: 42 rows"
        again = await session.add("a", f"Result of `{event}`: 42 rows", "r1")
        other = await session.add("a", f"Result of `{event}`: 43 rows", "r1")
    assert (again.code, other.code) == ("duplicate", "conflict")


@pytest.mark.row("B43")
async def test_late_result_reaches_the_turn_while_it_runs(turn_rig: TurnRig) -> None:
    def driver(request: CompletionRequest) -> Completion:
        if not any(isinstance(part, ResultPart) for each in request.messages for part in each.parts):
            return calls(("export", ONE), ("pay", ONE))
        return respond(" | ".join(filter(None, map(words, request.messages))))

    tools = [export(), pay_tool(Ledger())]
    async with turn_rig.running(tools, ScriptedModel(driver)) as turns:
        session = talk(turns)
        await session.say("both", "a")
        await session.turn("a", "waiting")
        event = f"main.{session.key.session}.a.c1.1"
        assert (await session.add("a", f"Result of `{event}`: 42 rows")).turn == "a"
        await turns.signoff.decide(yes(session.turn_key("a"), "c1.2"))
        assert await session.answer("a") == f"both | Result of `{event}`: 42 rows"
        view = await turns.sessions.session(session.key)
    assert [turn.turn for turn in view.turns] == ["a"]


async def test_late_result_for_unknown_session_is_not_found(turn_rig: TurnRig) -> None:
    async with turn_rig.running([export()], ScriptedModel(waiting)) as turns:
        with pytest.raises(NotFound):
            await talk(turns).add("a", "42 rows")
