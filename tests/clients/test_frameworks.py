"""Each agent is the example of docs/external-calls.md, and runs in a separate environment."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client_rig import HUGE, LARGE, SMALL, ClientRig
from framework_program import Case, FrameworkProgram, framework_program

from signoff_client import Call

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
FRAMEWORKS = (
    "openai",
    "langchain",
    "langchain_blocking",
    "strands",
    "agent_framework",
    "claude",
    pytest.param("vercel", marks=pytest.mark.vercel),
)
EDITED = {"order": "A7", "euro": 150}


@pytest.fixture(scope="module", params=FRAMEWORKS)
async def program(request: pytest.FixtureRequest) -> AsyncIterator[FrameworkProgram]:
    async with framework_program(request.param) as started:
        yield started


async def first_call(rig: ClientRig, case: Case) -> Call:
    call = rig.call(case.turns[0][0][1], key=await case.first_key(), wait=0)
    await call.settle()
    return call


async def test_permitted_call_is_run_and_reported(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", SMALL),),))
    played = await program.play(rig, case)
    assert played == {"text": "refunded 20 EUR for A7", "ran": [["A7", 20]]}
    assert (await first_call(rig, case)).text == "refunded 20 EUR for A7"


async def test_edited_call_is_run_as_approved(rig: ClientRig, program: FrameworkProgram) -> None:
    """If a framework cannot change them, the model makes a new call with them, without further approval."""
    turns: Any = ((("refund", LARGE),),)
    if program.name == "openai":
        turns = (*turns, (("refund", EDITED),))
    case = Case(turns)
    playing = asyncio.create_task(program.play(rig, case))
    call = await first_call(rig, case)
    await rig.decide(call, edited_args=EDITED)
    played = await playing
    assert played["ran"] == [["A7", 150]]
    assert "refunded 150 EUR for A7" in played["text"]
    assert (await rig.show(call.id))["code"] == "ok"


async def test_remark_of_an_approver_reaches_the_model(rig: ClientRig, program: FrameworkProgram) -> None:
    """The OpenAI SDK has no place for it: a hook cannot change a result."""
    case = Case(((("refund", LARGE),),))
    playing = asyncio.create_task(program.play(rig, case))
    await rig.decide(await first_call(rig, case), reason="thank you for checking")
    played = await playing
    assert ("thank you for checking" in played["text"]) is (program.name != "openai")


async def test_denial_is_returned_to_the_model(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", LARGE), ("refund", HUGE), ("refund", {"order": "B2", "euro": 10})),))
    playing = asyncio.create_task(program.play(rig, case))
    await rig.decide(await first_call(rig, case), verdict="denied", reason="not twice")
    played = await playing
    assert played["ran"] == [["B2", 10]]
    answers = played["text"].split(" | ")
    assert sorted(each[:30] for each in answers) == [
        "Not run: a rule denies it: `de",
        "Not run: it was denied by appr",
        "refunded 10 EUR for B2",
    ]
    assert "not twice" in played["text"]


async def test_timeout_is_returned_to_the_model(rig: ClientRig, program: FrameworkProgram) -> None:
    played = await program.play(rig, Case(((("refund", LARGE),),)), tool="brief")
    assert (played["text"].startswith("Not run: nobody answered in time"), played["ran"]) == (True, [])


async def test_withdrawal_is_returned_to_the_model(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", LARGE),),))
    playing = asyncio.create_task(program.play(rig, case))
    assert await (await first_call(rig, case)).withdraw()
    played = await playing
    assert (played["text"].startswith("Not run: it was withdrawn"), played["ran"]) == (True, [])


async def test_used_call_is_not_run_again(rig: ClientRig, program: FrameworkProgram) -> None:
    if program.name == "claude":
        # The SDK never repeats a completed call: a repeated id belongs to another call.
        return
    case = Case(((("refund", SMALL),),))
    await program.play(rig, case)
    played = await program.play(rig, case)
    assert played == {"text": "refunded 20 EUR for A7", "ran": []}


async def test_repeated_id_in_another_conversation_is_asked_and_run(rig: ClientRig, program: FrameworkProgram) -> None:
    for _ in range(2):
        case = Case(((("refund", LARGE),),), ids="functions.refund")
        playing = asyncio.create_task(program.play(rig, case))
        await rig.decide(await first_call(rig, case))
        assert await playing == {"text": "refunded 200 EUR for A7", "ran": [["A7", 200]]}


async def test_waiting_call_runs_nothing_and_is_found_again(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", LARGE),),))
    played = await program.play(rig, case, wait=0)
    assert played["ran"] == []
    # If an interruption is stored, the result has no text.
    kept = {"openai": "None", "vercel": ""}.get(program.name)
    assert "waits for a person's approval" in played["text"] if kept is None else played["text"] == kept
    await rig.decide(await first_call(rig, case))
    if program.name == "claude":
        # A new session is another conversation.
        return
    assert (await program.play(rig, case))["ran"] == [["A7", 200]]


async def test_failure_of_the_tool_is_not_reported_as_a_refund(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", {"order": "closed", "euro": 20}),),))
    played = await program.play(rig, case)
    call = await first_call(rig, case)
    assert played["ran"] == [["closed", 20]]
    # The OpenAI Agents SDK turns the error into a text without its message, and returns that as the tool's result.
    assert ("An error occurred" if program.name == "openai" else "the bank is closed") in call.text
    assert call.status.code == ("ok" if program.name == "openai" else "execution_failed")


async def test_unreachable_gateway_means_no_run_in_a_framework(rig: ClientRig, program: FrameworkProgram) -> None:
    case = Case(((("refund", LARGE),),))
    async with rig.serve() as url:
        playing = asyncio.create_task(program.play(rig, case, url=url))
        await first_call(rig, case)
    played = await playing
    assert (played["text"].startswith("Not run: Signoff gave no answer"), played["ran"]) == (True, [])
    gone = await program.play(rig, Case(((("refund", SMALL),),)), url=url)
    assert (gone["text"].startswith("Not run: Signoff gave no answer"), gone["ran"]) == (True, [])
