import asyncio
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from gateway_rig import GatewayRig, gateway_rig
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.service import RPCError

from signoff.engine.turn_client import TurnClient
from signoff.store.questions.questions import Questions
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerHandle, ServerOptions, free_port, run_server

PAGE_SECONDS = 3.0
"""A page takes a tenth of a second. It took 15 s to 20 s when each of its calls waited for the server."""
ANSWER_SECONDS = 5.0
"""An answer took 9 s to 14 s when the Update and the Signal each waited for the server."""


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[ServerHandle]:
    async with run_server(ServerOptions(tmp_path / "temporal.db", port=free_port(), ui_port=None)) as handle:
        yield handle


async def timed(sent: "asyncio.Future[httpx2.Response] | asyncio.Task[httpx2.Response]") -> tuple[int, float]:
    begun = time.monotonic()
    return (await sent).status_code, time.monotonic() - begun


async def test_pages_and_answers_wait_for_a_killed_server_only_once(own_server: ServerHandle, tmp_path: Path) -> None:
    queue = f"away-{uuid.uuid4().hex[:12]}"
    async with (
        open_store(f"sqlite:///{tmp_path}/signoff.db") as store,
        gateway_rig(await own_server.connect(), store, queue, dispatches=False) as rig,
    ):
        settled, first, second = [await rig.asked("pay") for _ in range(3)]
        assert (await rig.decide(settled, verdict="denied", revision=1)).status_code == 200
        os.kill(own_server.pid, signal.SIGKILL)
        await own_server.wait()
        status, seconds = await timed(asyncio.create_task(rig.http.get(f"/approvals/{second}")))
        assert (status, seconds < PAGE_SECONDS) == (200, True), seconds
        assert (await rig.decide(first, verdict="approved", revision=1)).status_code == 200
        for path in (f"/approvals/{second}", f"/approvals/{first}", f"/approvals/{settled}", "/"):
            status, seconds = await timed(asyncio.create_task(rig.http.get(path)))
            assert (status, seconds < PAGE_SECONDS) == (200, True), (path, seconds)
        answer = asyncio.create_task(rig.decide(second, verdict="approved", revision=1))
        status, seconds = await timed(answer)
        assert (status, seconds < ANSWER_SECONDS) == (200, True), seconds
        assert answer.result().json()["status"] == "accepted"
        assert await answers_kept(rig, second) == ["approved"]


async def test_calls_of_a_hung_server_fail_at_once_until_it_is_back(
    own_server: ServerHandle,
) -> None:
    temporal = TurnClient(await own_server.connect()).temporal

    async def ask() -> str:
        try:
            await temporal.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=timedelta(seconds=1))
        except RPCError as error:
            return error.message
        return "ok"

    assert await ask() == "ok"
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        # It may still answer for a moment.
        while await ask() == "ok":
            pass
        begun = time.monotonic()
        assert [await ask() for _ in range(20)] == ["it did not answer a moment ago"] * 20
        assert time.monotonic() - begun < 10.0, "each of twenty calls waited for the server"
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    while await ask() != "ok":
        await asyncio.sleep(0.1)


async def answers_kept(rig: GatewayRig, approval: str) -> list[str]:
    rows = await Questions(rig.deps.store).read(approval)
    assert rows is not None
    return [each.vote.decision.verdict for each in rows.answers]
