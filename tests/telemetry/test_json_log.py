import asyncio
import gc
import json
import logging
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gateway_rig import GatewayRig, gateway_rig, rig_catalog
from temporalio.client import Client
from turn_fixtures import Ledger, catalog_of, pay_tool

from signoff.cli.terminal.log_setup import LOG_NAME, process_log
from signoff.contracts.completion import Completion, CompletionRequest
from signoff.contracts.ids import TurnKey
from signoff.registry.catalog import Catalog
from signoff.registry.tool_context import ToolContext
from signoff.store.store import Store
from signoff.telemetry.json_log import bind_log_fields, fields_of_request
from signoff.testing.scripted_model import ScriptedModel, calls, respond, results

MARKER = "zebra-crossing-7731"
SECRET = "s3cret-994218305567"
ARGS = {"to": MARKER, "pin": SECRET}
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "pin": {"type": "string", "writeOnly": True}},
    "required": ["to", "pin"],
}


def marked_catalog(ledger: Ledger) -> Catalog:
    async def fails(args: dict[str, Any], context: ToolContext) -> str:
        logging.getLogger("signoff.test").info("a handler runs")
        raise ValueError(f"cannot pay with {args}")

    given: dict[str, Any] = {"input_schema": SCHEMA, "effect": "Pay {to}"}
    tools = [pay_tool(ledger, **given), pay_tool(ledger, False, name="fails", handler=fails, **given)]
    return catalog_of(tools, people=rig_catalog(ledger).people)


def react(request: CompletionRequest) -> Completion:
    return respond(f"done with {MARKER}") if results(request) else calls(("pay", ARGS), ("fails", ARGS))


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    queue = f"log-{uuid.uuid4().hex[:12]}"
    async with gateway_rig(client, store, queue, catalog_of_ledger=marked_catalog, model=ScriptedModel(react)) as found:
        yield found


async def test_turn_is_logged_with_its_ids_and_without_user_data(
    rig: GatewayRig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with process_log(tmp_path, as_json=True):
        approval = await rig.asked(f"pay {MARKER}")
        named = TurnKey(*approval.split(".")[:3])
        await rig.decide(approval, verdict="approved", revision=1, reason=f"for {MARKER}", **{"as": "approver"})
        await rig.turns.signoff.result(named)
    text = capsys.readouterr().err
    assert [word for word in (MARKER, SECRET) if word in text] == []
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    of_turn = [line for line in lines if line.get("turn") == named.turn]
    assert {(line["tenant"], line["session"]) for line in of_turn} == {(named.tenant, named.session)}
    kinds = {line["kind"]: line for line in of_turn if line["logger"] == "signoff.record"}
    assert {"turn", "proposal", "request", "attempt", "execution", "outcome"} <= kinds.keys()
    assert (kinds["request"]["call"], kinds["request"]["request"]) == ("c1.1", approval)
    assert (kinds["attempt"]["verdict"], kinds["attempt"]["status"]) == ("approved", "accepted")
    [ran] = [line for line in lines if line["logger"] == "signoff.test"]
    assert (ran["turn"], ran["call"], ran["request"]) == (named.turn, "c1.2", f"{approval[:-1]}2")
    assert not (tmp_path / LOG_NAME).exists()


async def test_plain_logs_are_unchanged(rig: GatewayRig, tmp_path: Path) -> None:
    with process_log(tmp_path, "worker.log"):
        await rig.asked("pay")
        logging.getLogger("signoff.test").warning("something is wrong")
    written = (tmp_path / "worker.log").read_text()
    assert "something is wrong" in written
    assert "signoff.record" not in written


def test_error_is_logged_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with process_log(tmp_path, as_json=True):
        try:
            raise ValueError(f"cannot pay {MARKER}\nforged")
        except ValueError:
            logging.getLogger("elsewhere").warning("a request for %s", "/x\nforged", exc_info=True)
        logging.getLogger("httpx2").info("POST https://vendor.example/bot%s/send", SECRET)
    [line] = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    assert found["trace"].startswith("ValueError\n")
    assert "test_json_log.py" in found["trace"]
    assert found["message"] == "a request for /x\nforged"
    assert MARKER not in line


async def test_log_fields_belong_to_the_logging_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("signoff.test")

    async def say(approval: str, other: asyncio.Event, own: asyncio.Event) -> None:
        with bind_log_fields(fields_of_request(approval)):
            own.set()
            await other.wait()
            log.info(approval)

    first, second = asyncio.Event(), asyncio.Event()
    with process_log(tmp_path, as_json=True):
        await asyncio.gather(say("main.s.t.c1.1", first, second), say("acme.s.t.c2.1", second, first))
        log.info("none")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {line["message"]: (line.get("tenant"), line.get("request")) for line in lines} == {
        "main.s.t.c1.1": ("main", "main.s.t.c1.1"),
        "acme.s.t.c2.1": ("acme", "acme.s.t.c2.1"),
        "none": (None, None),
    }


def test_invalid_log_format_is_reported_in_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "signoff.cli.main", "worker"]
    env = {"PATH": "/usr/bin:/bin", "SIGNOFF_LOG": "xml"}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "the variable `SIGNOFF_LOG` is `xml`" in ran.stderr


async def test_unawaited_task_logs_no_argument(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def fail() -> None:
        raise ValueError(f"cannot pay to {MARKER}")

    def fail_with(_: str) -> None:
        raise ValueError(SECRET)

    loop = asyncio.get_running_loop()
    with process_log(tmp_path, LOG_NAME, as_json=True):
        lost = loop.create_task(fail())
        loop.call_soon(fail_with, MARKER)
        await asyncio.wait([lost])
        del lost
        gc.collect()
    logged = capsys.readouterr().err
    messages = [json.loads(line)["message"] for line in logged.splitlines()]
    assert len(messages) == 2
    assert "Task exception was never retrieved" in messages
    assert MARKER not in logged
    assert SECRET not in logged
