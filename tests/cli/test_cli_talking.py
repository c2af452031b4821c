import io
from typing import Any

import pytest
from cli_kit import Cli, assert_one_sentence
from pydantic_core import from_json
from served_stack import gateway_alone
from tables import table

import signoff
from signoff.cli.terminal.turn_exit import exit_code
from signoff.contracts.call import CallCode, CallOutcome
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.names import OFFLINE_MODEL
from signoff.contracts.person import Principal
from signoff.contracts.turn import TurnResult, TurnView
from signoff.temporal.embedded_server import ServerHandle
from signoff.testing.scripted_model import ScriptedModel, respond

RUI = Principal(user="rui")


async def test_conversation_is_written_listed_and_read(served_cli: Cli) -> None:
    first = await served_cli("chat", "pay 420", "--session", "talk1")
    assert (first.code, first.err) == (0, "")
    (waits,) = [line for line in first.out.splitlines() if "Pay 420 EUR to Ana: waiting for role:approvers" in line]
    assert "session talk1: signoff chat --session talk1" in first.out
    second = await served_cli("chat", "pay 5", "--session", "talk1", "--json")
    assert (second.code, len(second.out.splitlines())) == (0, 1)
    assert (second.data["receipt"]["status"], [turn["state"] for turn in second.data["turns"]]) == (
        "accepted",
        ["complete"],
    )
    (row,) = [row for row in (await served_cli("sessions", "--json")).data if row["session"] == "talk1"]
    assert (row["requester"], row["title"], len(row["codes"])) == ("guest", "pay 420", 1)
    code = waits[waits.index("(") + 1 : waits.index(")")]
    listed = await served_cli("sessions")
    assert ("talk1" in listed.out, code in listed.out) == (True, True)
    assert (await served_cli("deny", code, "--reason", "not today")).code == 0
    shown = await served_cli("sessions", "talk1")
    assert shown.out.splitlines()[0] == "guest: pay 420"
    assert "guest: pay 5" in shown.out


async def test_conversation_on_a_route_passes_its_instructions_to_the_model(cli: Cli) -> None:
    read: list[str] = []

    def react(request: CompletionRequest) -> Completion:
        read.append(request.instructions)
        return respond("Which order?")

    app = signoff.App(model="openai:gpt-5")
    app.actor("clerk", instructions="Be brief.").route("returns", instructions="Ask for the receipt.")
    async with app.test(ScriptedModel(react)) as test:
        place = ("--session", "talk3", "--url", test.client.url)
        assert (await cli("chat", "a return", "--route", "returns", *place)).code == 0
        assert (await cli("chat", "order 7", *place)).code == 0
        view = await test.client.session("talk3")
    assert (view.route, len(read)) == ("returns", 2)
    assert all("Be brief." in words and "Ask for the receipt." in words for words in read)


async def test_message_to_an_unknown_route_or_step_fails(cli: Cli) -> None:
    app = signoff.App(model="openai:gpt-5")
    app.actor("clerk").route("returns")
    lost = "actor `clerk` has no route and step `lost/`; known: `returns`"
    async with app.test(ScriptedModel(lambda request: respond("Hello."))) as test:
        url = ("--url", test.client.url)
        lost_place = ("chat", "hello", "--route", "lost")
        assert assert_one_sentence(await cli(*lost_place, "--actor", "clerk", *url)) == lost
        assert (await cli(*lost_place, *url)).code == 1
        talk = ("--session", "talk4", *url)
        assert (await cli("chat", "hello", *talk)).code == 0
        said = await cli(*lost_place, *talk)
        assert (said.code, f"error: {lost}" in said.out) == (1, True)
        as_json = await cli(*lost_place, "--json", *talk)
        assert (as_json.code, as_json.data["state"]) == (1, "error")
        assert [each["message"] for each in as_json.data["errors"]] == [lost]
        assert (await cli("chat", "hello", *talk)).code == 0


async def test_a_script_learns_by_the_exit_code_that_a_call_was_denied(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = signoff.App(model=OFFLINE_MODEL)

    @app.tool(auto_approve_if="args.amount <= 100", deny_if="args.amount > 100")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        return f"paid {amount}"

    app.actor("clerk", tools=[pay])
    async with app.test() as test:
        url = ("--url", test.client.url)
        for command in ("ask", "chat"):
            assert (await cli(command, "pay 5", *url)).code == 0
            assert (await cli(command, "pay 500", *url)).code == 3
        monkeypatch.setattr("sys.stdin", io.StringIO("pay 500\npay 5\n"))
        assert (await cli("chat", *url)).code == 3


@table(
    ("code", "gate", "expected"),
    ("ok", "execute", 0),
    ("skipped", "respond", 0),
    ("not_available", "resolve", 0),
    ("input_invalid", "validate", 0),
    ("skipped", "execute", 3),
    ("denied", "approval", 3),
    ("in_doubt", "execute", 3),
    ("execution_failed", "execute", 3),
    ("waiting", "", 3),
)
def test_exit_code_follows_the_state_and_call_outcome_of_the_turns(code: CallCode, gate: str, expected: int) -> None:
    outcome = CallOutcome(call="c1.1", tool="pay", code=code, gate=gate)
    given: dict[str, Any] = {"tenant": "main", "session": "s", "turn": "t", "actor": "a"}
    waits = TurnView(**given, requester=RUI, state="suspended")
    over = TurnView(**given, requester=RUI, state="complete", result=TurnResult(state="complete", calls=(outcome,)))
    failed = TurnView(**given, requester=RUI, state="error", result=TurnResult(state="error", calls=(outcome,)))
    assert [exit_code(turns) for turns in ([waits], [waits, over], [over, failed])] == [0, expected, 1]


async def test_lines_of_standard_input_are_messages(served_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pay 5\n\npay 6\n"))
    ran = await served_cli("chat", "--session", "talk2", "--json")
    replies = [from_json(line) for line in ran.out.splitlines()]
    assert (ran.code, [each["turns"][0]["state"] for each in replies]) == (0, ["complete", "complete"])
    assert len({each["receipt"]["turn"] for each in replies}) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("chat", " "), "the text is empty"),
        (("ask", ""), "the text is empty"),
        (("ask", "x", "--session", "a b"), "a session is named with"),
        (("chat", "x", "--session", "a b"), "a session is named with"),
    ],
)
async def test_empty_text_or_invalid_session_exits_with_2(cli: Cli, words: tuple[str, ...], expected: str) -> None:
    ran = await cli(*words)
    assert (ran.code, ran.out, expected in " ".join(ran.err.split())) == (2, "", True)


async def test_start_limit_is_reported_in_one_sentence(
    cli: Cli, clean_env: pytest.MonkeyPatch, cli_server: ServerHandle, task_queue: str
) -> None:
    clean_env.setenv("SIGNOFF_TENANT_LIMITS", "starts=1/hour")
    async with gateway_alone(clean_env, cli_server, task_queue):
        assert (await cli("ask", "pay 5", "--no-wait")).code == 0
        for command in ("ask", "chat"):
            message = assert_one_sentence(await cli(command, "pay 5"))
            assert message.startswith("the tenant `main` has begun as many turns as it may (1/hour): try again in ")


async def test_unknown_actor_person_or_session_is_reported(served_cli: Cli) -> None:
    assert "there is no actor" in assert_one_sentence(await served_cli("chat", "pay 5", "--actor", "nobody"))
    assert "there is no person" in assert_one_sentence(await served_cli("chat", "pay 5", "--as", "nobody"))
    assert "nothing" in assert_one_sentence(await served_cli("sessions", "nothing"))
