import asyncio
import contextlib
import json
import os
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from client_rig import ClientRig
from environments import environment
from temporal_rig import asked_call, until_asked
from temporalio.client import Client, WorkflowFailureError

from signoff.temporal.embedded_server import ServerHandle

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
FRAMEWORKS = ("openai", "langgraph", "strands", "pydantic_ai")


@contextlib.asynccontextmanager
async def running(name: str, server: ServerHandle, rig: ClientRig) -> AsyncIterator[str]:
    python = await asyncio.to_thread(environment, "temporal", HERE / "temporal_frameworks.txt")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SIGNOFF_", "TEMPORAL_"))}
    paths = (HERE / "programs", HERE.parents[1] / "clients" / "python")
    variables |= {"PYTHONPATH": ":".join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    queue = f"gated-{uuid.uuid4().hex}"
    # An imported module, because LangGraph names a node after it.
    command = (python, "-c", f"import temporal_{name}_program as program; program.main()")
    command += (server.address, queue, rig.url, rig.token)
    process = await asyncio.create_subprocess_exec(*command, env=variables, stdin=PIPE)
    try:
        yield queue
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_tool_of_a_framework_is_gated(
    name: str, server: ServerHandle, signals: ClientRig, plain_client: Client
) -> None:
    """The OpenAI Agents SDK and Strands pass the reason to the model. The other two fail the workflow with it."""

    async def start(order: str) -> Any:
        return await plain_client.start_workflow(
            "Agent", order, id=f"gated-{uuid.uuid4().hex}", task_queue=queue, result_type=str
        )

    async with running(name, server, signals) as queue:
        first, second = await start("A7"), await start("B2")
        await until_asked(first)
        approved = await asked_call(signals, first, plain_client)
        assert (approved.tool, approved.state) == ("refund", "waiting")
        await signals.decide(approved, edited_args={"order": "A7", "euro": 150})
        assert await first.result() == "refunded 150 EUR for A7"
        ended = await signals.settled(approved.id)
        assert (ended["code"], "refunded 150 EUR for A7" in json.dumps(ended["result"])) == ("ok", True)
        await until_asked(second)
        denied = await asked_call(signals, second, plain_client)
        await signals.decide(denied, verdict="denied", reason="not twice")
        try:
            told = await second.result()
        except WorkflowFailureError as error:
            told = str(error.cause.__cause__)
    assert told.endswith("Not run: it was denied by approver: not twice")
    assert (await signals.show(denied.id))["reason"] == "not twice"
