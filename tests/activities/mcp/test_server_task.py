import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, by_streams, using

from signoff.activities.mcp.server_task import LOOKS, CreatedTask, TaskLost, follow_task
from signoff.activities.mcp.worker_servers import WorkerServers
from signoff.contracts.errors import InDoubt
from signoff.registry.tool_result import ToolFailure, ToolResult

TASK = "mcp__up__task"


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Upstream, WorkerServers]]:
    upstream = Upstream(tmp_path_factory.mktemp("tasks"))
    async with by_http(upstream) as server, using(server) as servers:
        yield upstream, servers


async def test_server_task_is_polled_to_its_result(served: tuple[Upstream, WorkerServers]) -> None:
    upstream, servers = served
    assert await servers.run("up", TASK, {"text": "a7"}) == ToolResult("done: a7")
    assert [each for each in upstream.looks if each[1] == "a7"] == [["get", "a7"], ["get", "a7"]]
    assert [each[1] for each in upstream.calls].count({"text": "a7"}) == 1


@pytest.mark.parametrize(("name", "words"), [("failed", "the bank is closed"), ("asks", "asks its caller for input")])
async def test_failed_server_task_is_a_failure(served: tuple[Upstream, WorkerServers], name: str, words: str) -> None:
    upstream, servers = served
    result = await servers.run("up", TASK, {"text": name})
    assert isinstance(result, ToolFailure)
    assert words in result.message
    assert (["cancel", name] in upstream.looks) is (name == "asks")


@pytest.mark.parametrize("name", ["lost", "cancelled", "nonsense"])
async def test_lost_server_task_is_in_doubt(served: tuple[Upstream, WorkerServers], name: str) -> None:
    with pytest.raises(InDoubt, match="without an answer"):
        await served[1].run("up", TASK, {"text": name})


async def test_cancelled_call_cancels_its_server_task(served: tuple[Upstream, WorkerServers]) -> None:
    upstream, servers = served
    running = asyncio.create_task(servers.run("up", TASK, {"text": "forever"}))
    while ["get", "forever"] not in upstream.looks:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert upstream.looks[-1] == ["cancel", "forever"]


async def test_server_task_survives_a_reconnect(tmp_path: Path) -> None:
    upstream = Upstream(tmp_path)
    async with using(by_streams(upstream)) as servers:
        assert await servers.run("up", TASK, {"text": "die"}) == ToolResult("done: die")
    assert len(upstream.processes) == 2
    assert [each[0] for each in upstream.calls] == ["task"]


async def test_task_of_an_unreachable_server_is_lost() -> None:
    asked = []

    async def ask(request: Any, kind: Any) -> Any:
        asked.append(request.method)
        raise ConnectionResetError

    with pytest.raises(TaskLost):
        await follow_task(CreatedTask(task_id="t", poll_interval_ms=0), ask)
    assert asked == ["tasks/get"] * LOOKS
