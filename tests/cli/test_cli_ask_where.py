"""`ask` on a route, at a step."""

from pathlib import Path

import pytest
from cli_kit import Cli, assert_one_sentence
from served_stack import gateway_alone

from signoff.temporal.embedded_server import ServerHandle

ROUTED = """
version: 1
actors:
  clerk:
    model: scripted:nowhere:model
    routes:
      trip: {steps: {buy: {}}}
"""


async def test_ask_begins_where_it_is_told(served_cli: Cli, cli_server: ServerHandle) -> None:
    asked = await served_cli("ask", "hello", "--route", "vip", "--step", "first", "--no-wait", "--json")
    assert asked.code == 0, asked.err
    client = await cli_server.connect()
    history = await client.get_workflow_handle(asked.data["workflow_id"]).fetch_history()
    begun = history.events[0].workflow_execution_started_event_attributes.input.payloads[0].data
    assert b'"route":"vip"' in begun
    assert b'"step":"first"' in begun


async def test_ask_refuses_a_place_that_the_actor_does_not_have(
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
