from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import gateway_alone, worker_alone

from signoff.temporal.embedded_server import ServerHandle

ROUTED = """
version: 1
actors:
  clerk:
    model: scripted:nowhere:model
    routes:
      trip: {steps: {buy: {}}}
"""


async def test_ask_starts_at_the_given_route_and_step(served_cli: Cli, cli_server: ServerHandle) -> None:
    asked = await served_cli("ask", "hello", "--route", "vip", "--step", "first", "--no-wait", "--json")
    assert asked.code == 0, asked.err
    client = await cli_server.connect()
    history = await client.get_workflow_handle(asked.data["workflow_id"]).fetch_history()
    begun = history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data
    assert b'"route":"vip"' in begun
    assert b'"step":"first"' in begun


async def test_ask_refuses_an_unknown_route_or_step(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path, cli_server: ServerHandle, task_queue: str
) -> None:
    (tmp_path / "m.yaml").write_text(ROUTED)
    async with gateway_alone(clean_env, cli_server, task_queue, manifest=tmp_path / "m.yaml"):
        unknown = assert_one_sentence(await cli("ask", "hello", "--tool", "look_up"))
        assert "actor `clerk` can have no tool `look_up` for one turn" in unknown
        for where in (("--route", "tirp"), ("--route", "trip", "--step", "by"), ("--step", "buy")):
            words = assert_one_sentence(await cli("ask", "hello", *where))
            assert "has no route and step" in words
            assert "`trip/buy`" in words


MOVING = """
version: 1
actors:
  clerk:
    model: offline
    routes:
      trip:
        steps:
          ask: {collect: {city: {type: string}}}
          buy: {requires: [city]}
"""


async def test_chat_and_sessions_show_the_current_step_of_a_conversation(
    cli: Cli, clean_env: pytest.MonkeyPatch, tmp_path: Path, cli_server: ServerHandle, task_queue: str
) -> None:
    (tmp_path / "m.yaml").write_text(MOVING)
    said = ("collect city=Porto", "--session", "moved")
    async with (
        gateway_alone(clean_env, cli_server, task_queue, manifest=tmp_path / "m.yaml"),
        worker_alone(cli_server, task_queue),
    ):
        first = await cli("chat", *said, "--route", "trip")
        assert (first.code, first.err) == (0, "")
        places = [line.strip() for line in first.out.splitlines() if line.strip().startswith("at ")]
        assert places[-1] == "at trip/buy"
        shown = await cli("sessions", "moved")
        assert "at trip/buy" in [line.strip() for line in shown.out.splitlines()]
        data = (await cli("sessions", "moved", "--json")).data
        assert (data["route"], data["step"]) == ("trip", "buy")
