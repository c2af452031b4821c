import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from cli_kit import Cli, Ran, assert_one_sentence, waiting_request
from dev_process import START_SECONDS, Dev
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pydantic_core import from_json
from served_stack import MANIFEST

from signoff.contracts.content import Content
from signoff.contracts.ids import show_code
from signoff.contracts.names import VERSION
from signoff.store.questions.questions import Questions
from signoff.store.store import open_store
from signoff.temporal.embedded_server import ServerHandle, free_port
from signoff.testing.builders import a_question


@pytest.fixture
async def dev(cli: Cli, tmp_path: Path) -> AsyncIterator[Dev]:
    installation = Dev(tmp_path)
    yield installation
    if installation.process is not None and installation.process.returncode is None:
        await installation.end(signal.SIGKILL)


async def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await look()
        if found:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


@pytest.mark.timeout(300)
async def test_one_scrape_has_metrics_of_turns_and_of_the_sdk(
    dev: Dev, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("SIGNOFF_METRICS_PORT", str(port))
    await dev.start()
    await waiting_request(cli, "pay 500")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}

    async def measured() -> dict[str, Metric]:
        async with httpx2.AsyncClient(headers=accept, timeout=60) as http:
            text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
        found = {family.name: family for family in text_string_to_metric_families(text)}
        return found if found["signoff_gate_outcomes"].samples else {}

    found = await until(measured)
    assert [each.labels for each in found["signoff_build"].samples] == [{"version": VERSION, "process": "dev"}]
    polls = {each.labels["poller_type"] for each in found["temporal_num_pollers"].samples}
    assert {"workflow_task", "activity_task"} <= polls
    tasks = found["temporal_activity_execution_latency_seconds"]
    assert tasks.type == "histogram"
    # Used by the dashboard and the alerts of `deploy/observability`.
    assert {
        "temporal_worker_task_slots_available",
        "temporal_activity_schedule_to_start_latency_seconds",
        "temporal_workflow_task_execution_latency_seconds",
    } <= found.keys()
    assert "signoff.model" in {each.labels["activity_type"] for each in tasks.samples}
    assert {each.labels["operation"] for each in found["temporal_request"].samples} > {"StartWorkflowExecution"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_dev_continues_after_a_stop_or_kill(dev: Dev, cli: Cli, number: signal.Signals) -> None:
    await dev.start()
    done = (await cli("ask", "pay 5", "--json")).data["turn"]
    stays = await waiting_request(cli, "pay 500")
    before = None
    # Its request is open for seconds only, and on a busy machine it may end before the check.
    while before is None or before.data["state"] != "pending":
        expires = await waiting_request(cli, "hurry")
        before = await cli("show", expires["id"], "--json")
    code = await dev.end(number)
    if number == signal.SIGINT:
        assert code == 0
        stopped = [line.strip() for line in dev.lines if line.startswith("stop")]
        assert stopped == [
            "stopping: gateway",
            "stopping: worker",
            "stopping: Temporal",
            "stopped; started again, it takes up where it stopped",
        ]
    await until(
        lambda: asyncio.to_thread(lambda: datetime.now(UTC) > datetime.fromisoformat(before.data["expires_at"]))
    )

    await dev.start()
    assert [card["id"] for card in (await cli("inbox", "--json")).data if card["id"] == stays["id"]] == [stays["id"]]
    timed_out = await until(lambda: _in_state(cli, expires["id"], "timed_out"))
    assert timed_out["decided_by"] == ""
    late = await cli("approve", expires["id"])
    assert (late.code, "The deadline has passed" in late.out) == (1, True)
    assert (await cli("approve", stays["code"])).code == 0
    assert "ok paid 500 to Ana" in (await cli("watch", stays["turn"])).out
    states = {row["turn"]: row["state"] for row in (await cli("turns", "--json")).data}
    assert states[done] == "complete"
    assert await dev.end(signal.SIGTERM) == 0


async def test_dev_prints_its_processes_and_answers_requests(dev: Dev, cli: Cli) -> None:
    await dev.start()
    assert dev.process is not None
    children = psutil.Process(dev.process.pid).children(recursive=True)
    output = "".join(dev.lines)
    assert f"Inbox     http://127.0.0.1:{dev.ports[0]}" in output
    assert "because no model is set" in output
    assert "auto_approve_if: args.amount < 10" in output
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{dev.ports[0]}", trust_env=False, timeout=60) as http:
        assert (await http.get("/readyz")).status_code == 200
        turn = (await http.post("/v1/turns", json={"text": "pay 5", "user": "guest"})).json()["turn"]
    assert "ok paid 5 to Ana" in (await cli("watch", turn)).out
    taken = assert_one_sentence(await _second_dev(cli, dev))
    assert "another embedded server already works on" in taken
    assert await dev.end(signal.SIGINT) == 0
    assert [child for child in children if child.is_running()] == []
    assert "running.json" not in os.listdir(dev.folder / ".signoff")


async def test_dev_greets_with_the_name_of_the_app(dev: Dev) -> None:
    program = 'import signoff\n\napp = signoff.App(name="Depot", model="offline")\napp.actor("clerk")\n'
    (dev.folder / "depot.py").write_text(program)
    dev.manifest = Path("depot:app")
    await dev.start()
    assert f"Depot: Signoff {VERSION}, development profile" in "".join(dev.lines)
    assert await dev.end(signal.SIGTERM) == 0


async def _first_line(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "signoff.cli.main", *command), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            return (await process.stdout.readline()).decode()
    finally:
        process.kill()
        await process.wait()


async def test_second_gateway_prints_its_own_port(
    cli: Cli, clean_env: pytest.MonkeyPatch, server: ServerHandle
) -> None:
    clean_env.setenv("SIGNOFF_PUBLIC_URL", "https://signoff.example.com")
    port = str(free_port())
    line = await _first_line("gateway", str(MANIFEST), "--address", server.address, "--port", port)
    assert f"https://signoff.example.com, this gateway at http://127.0.0.1:{port};" in line


@pytest.mark.parametrize(("tools", "words"), [(1, "1 tool;"), (2, "2 tools;")])
async def test_worker_counts_one_tool_in_the_singular(
    cli: Cli, server: ServerHandle, tmp_path: Path, tools: int, words: str
) -> None:
    manifest = tmp_path / "tools.yaml"
    handlers = "".join(
        f"  t{number}: {{handler: 'cli_project_tools:look', scope: generalist}}\n" for number in range(tools)
    )
    manifest.write_text(f"version: 1\npath: ['{MANIFEST.parent}']\ntools:\n{handlers}")
    line = await _first_line("worker", str(manifest), "--address", server.address)
    assert words in line


async def test_dev_uses_a_running_server(dev: Dev, cli: Cli, server: ServerHandle) -> None:
    await dev.start("--address", server.address, "--json")
    assert dev.process is not None
    assert psutil.Process(dev.process.pid).children(recursive=True) == []
    found = from_json(dev.lines[-1])
    assert (found["temporal"], found["inbox"]) == (server.address, f"http://127.0.0.1:{dev.ports[0]}")
    assert "ok paid 5 to Ana" in (await cli("ask", "pay 5")).out
    assert await dev.end(signal.SIGINT) == 0
    assert await (await server.connect()).service_client.check_health()


async def _second_dev(cli: Cli, dev: Dev) -> Ran:
    ports = ("--port", str(free_port()), "--temporal-port", str(free_port()), "--no-ui")
    return await cli("dev", str(MANIFEST), *ports)


async def _in_state(cli: Cli, approval: str, state: str) -> dict[str, Any] | None:
    ran = await cli("show", approval, "--json")
    found: dict[str, Any] | None = ran.data if ran.code == 0 else None
    return found if found is not None and found["state"] == state else None


async def test_dev_names_open_requests_for_undeclared_tools(dev: Dev, cli: Cli) -> None:
    (dev.folder / ".signoff").mkdir()
    asked = a_question(id="main.s.t.c1.1", session="s", turn="t", tool="gone", args=Content(inline={}))
    async with open_store(f"sqlite:///{dev.folder}/.signoff/signoff.db") as store:
        put = await Questions(store).ask(asked, b"{}")
    assert put is not None
    await dev.start()
    assert (
        f"Warning   request {show_code(put.code)} waits for the tool `gone`, which nothing declares: "
        "declare it again, or deny the request\n"
    ) in dev.lines
    assert await dev.end(signal.SIGTERM) == 0


async def test_dev_without_signoff_on_the_path_suggests_to_activate_its_environment(
    dev: Dev, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    await dev.start()
    activate = Path(sys.prefix, "bin", "activate")
    assert any(line.startswith(f"Try       . {activate} && signoff ask ") for line in dev.lines)
    assert await dev.end(signal.SIGTERM) == 0
