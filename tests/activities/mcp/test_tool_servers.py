import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
from activity_kit import environment, run, summary, task_for, worker_deps
from mcp_upstream import Upstream
from mcp_upstream_kit import by_http, by_streams, imported_tool, using
from some import some
from temporalio.exceptions import ApplicationError
from turn_fixtures import TurnRig, catalog_of, yes

from signoff.activities.mcp.tool_servers import bind_to_servers, tool_servers, use_servers
from signoff.contracts.call import IN_DOUBT_TEXT
from signoff.keys.secrets import SecretProvider
from signoff.policy.approval_policy import ApprovalPolicy
from signoff.registry.mcp.tool_server import ToolServer
from signoff.store.store import Store
from signoff.testing.scripted_model import calls, respond

TEXT = {"text": "a7"}


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


async def test_imported_tool_call_runs_once_on_its_server(store: Store, upstream: Upstream) -> None:
    async with by_http(upstream) as server, using(server) as servers:
        tool = imported_tool(server, untrusted_output=True)
        deps, task = worker_deps(store, tool), task_for(tool, args=TEXT)
        bound = bind_to_servers(tool, servers)
        first = await run(deps, bound, task)
        assert await run(deps, bound, task) == first
    code, text = summary(first)
    assert code == "ok"
    assert "done: a7" in text
    assert text != "done: a7"
    assert [each[:2] for each in upstream.calls] == [["note", TEXT]]


async def test_schema_change_after_approval_stops_the_call(store: Store, upstream: Upstream) -> None:
    async with by_http(upstream) as server, using(server) as servers:
        tool = imported_tool(server)
        deps, task = worker_deps(store, tool), task_for(tool, args=TEXT)
        upstream.change("note", inputSchema={"type": "object", "properties": {"text": {"type": "number"}}})
        code, text = summary(await run(deps, bind_to_servers(tool, servers), task))
    assert code == "not_available"
    assert "has changed since it was imported: `input_schema`" in text
    assert upstream.calls == []


async def test_server_crash_during_a_call_leaves_the_call_in_doubt(store: Store, upstream: Upstream) -> None:
    async with using(by_streams(upstream)) as servers:
        server = by_streams(upstream)
        waits, reads = imported_tool(server, "wait"), imported_tool(server, "die", read_only=True)
        deps = worker_deps(store, waits, reads)
        task = task_for(waits, args=TEXT)
        running = asyncio.create_task(run(deps, bind_to_servers(waits, servers), task))
        await upstream.begun(1)
        os.kill(upstream.processes[0], signal.SIGKILL)
        assert summary(await running) == ("in_doubt", IN_DOUBT_TEXT)
        ticket = some(await store.read_ticket(task.digest))
        assert some(ticket.outcome).code == "in_doubt"
        with pytest.raises(ApplicationError, match="InDoubt") as caught:
            await run(deps, bind_to_servers(reads, servers), task_for(reads, args=TEXT), environment(reads.name))
        assert caught.value.type == "Transient"
        assert [each[0] for each in upstream.calls] == ["wait", "die"]


async def test_worker_starts_without_its_servers_and_logs_the_problem(
    upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    away = ToolServer("away", command=("no-such-program-here",), tools=by_streams(upstream, "away").tools)
    caplog.set_level(logging.WARNING, "signoff.activities")
    servers = tool_servers({"away": away}, SecretProvider())
    async with use_servers(servers):
        while "no-such-program-here" not in caplog.text:
            await asyncio.sleep(0.01)
    assert tool_servers({}, SecretProvider()) is None
    async with use_servers(None):
        assert caplog.text.count("no-such-program-here") == 1


async def test_imported_tool_without_a_server_connection_fails(store: Store, upstream: Upstream) -> None:
    server = by_streams(upstream)
    tool = imported_tool(server)
    assert bind_to_servers(tool, None) is tool
    deps = worker_deps(store, tool)
    code, text = summary(await run(deps, tool, task_for(tool, args=TEXT)))
    assert (code, text) == ("execution_failed", "this worker has no connection to MCP servers")


async def test_imported_tool_in_a_turn_runs_with_the_edited_arguments(turn_rig: TurnRig, upstream: Upstream) -> None:
    async with by_http(upstream) as server:
        tool = imported_tool(server, requires_approval=ApprovalPolicy(edit="approve"), effect="Note {text}")
        catalog = catalog_of([tool], mcp_servers=[server])
        script = [calls((tool.name, {"text": "a"})), calls((tool.name, {"text": "b"})), respond("done")]
        async with turn_rig.running(catalog, script) as turns:
            key = await turns.start()
            view = await turns.waiting(key)
            await turns.signoff.decide(yes(key, edited_args={"text": "c"}))
            await turns.until(key, lambda view: len(view.calls) == 2 and view.calls[-1].state == "waiting")
            upstream.change("note", description="Tool note, and more")
            result = await turns.result_after(yes(key, "c2.1"))
    assert some(view.calls[0].approval).card.effect == "Note a"
    first, second = result.calls
    assert (first.code, first.value.inline) == ("ok", "done: c")
    assert second.code == "not_available"
    assert "has changed since it was imported: `description`" in str(second.value.inline)
    assert [each[:2] for each in upstream.calls] == [["note", {"text": "c"}]]
