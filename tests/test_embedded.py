import asyncio
import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from google.protobuf.duration_pb2 import Duration
from polling import pauses
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import GrpcCompression

from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.temporal import embedded_server
from signoff.temporal.embedded_server import (
    ServerHandle,
    ServerOptions,
    download_temporal,
    find_temporal,
    free_port,
    run_server,
    server_arguments,
    start_server,
)
from signoff.temporal.server_connection import (
    DEFAULT_ADDRESS,
    SEARCH_ATTRIBUTES,
    check_server,
    connect,
    ensure_search_attributes,
    read_retention,
    set_retention,
)

ORPHAN = """
import asyncio, sys
from pathlib import Path
from signoff.temporal.embedded_server import ServerOptions, start_server

async def main():
    server = await start_server(ServerOptions(Path(sys.argv[1]), port=int(sys.argv[2]), ui_port=None))
    print(server.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def options_in(folder: Path) -> ServerOptions:
    return ServerOptions(folder / "temporal.db", port=free_port(), ui_port=None)


async def leave_waiting(client: Client) -> str:
    handle = await client.start_workflow("Waits", id=f"waits-{uuid.uuid4().hex}", task_queue="nobody")
    return handle.id


async def is_running(client: Client, workflow_id: str) -> bool:
    description = await client.get_workflow_handle(workflow_id).describe()
    return description.status == WorkflowExecutionStatus.RUNNING


async def bare_namespace(server: ServerHandle) -> Client:
    client = await server.connect()
    name = f"bare-{uuid.uuid4().hex[:8]}"
    day = Duration(seconds=86_400)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=day)
    await client.workflow_service.register_namespace(request)
    return await connect(server.address, name)


def half_made(options: ServerOptions) -> None:
    with contextlib.closing(sqlite3.connect(options.db_file)) as database:
        database.execute("create table schema_version (x)")


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


async def test_server_has_search_attributes_and_90_days_of_retention(client: Client) -> None:
    await check_server(client)
    assert await read_retention(client) == timedelta(days=90)


async def test_first_workflow_of_a_new_server_is_kept_for_the_retention(tmp_path: Path) -> None:
    options = options_in(tmp_path / "state")
    async with run_server(options) as server:
        client = await server.connect()
        await (await client.start_workflow("first", id="first", task_queue="none")).terminate()
        # Field 4 of a timer is its type, and 16 the deletion of an ended workflow.
        deletions = "SELECT visibility_timestamp FROM timer_tasks WHERE instr(data, x'2010') AND instr(data, 'first')"
        for pause in pauses():
            with contextlib.closing(sqlite3.connect(options.db_file)) as database:
                if found := database.execute(deletions).fetchall():
                    break
            await asyncio.sleep(pause)
    assert datetime.fromisoformat(found[0][0]) > datetime.now(UTC) + timedelta(days=80)


def test_local_connection_is_not_compressed(client: Client) -> None:
    """Compression would cost both processes a twelfth of their time in each turn."""
    assert client.service_client.config.grpc_compression is GrpcCompression.NONE


async def test_restarted_server_continues_its_workflows(tmp_path: Path) -> None:
    options = replace(options_in(tmp_path / "state"), retention_days=30)
    async with run_server(options) as server:
        waiting = await leave_waiting(await server.connect())
    assert await server.wait() == 0
    with contextlib.closing(sqlite3.connect(options.db_file)) as database:
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)
    async with run_server(replace(options, retention_days=90)) as server:
        client = await server.connect()
        assert await is_running(client, waiting)
        assert await read_retention(client) == timedelta(days=90)
        await check_server(client)
    assert not psutil.pid_exists(server.pid)
    await server.stop()


async def test_killed_server_loses_nothing(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    server = await start_server(options)
    waiting = await leave_waiting(await server.connect())
    await server.kill()
    async with run_server(options) as server:
        assert await is_running(await server.connect(), waiting)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    command = [sys.executable, "-c", ORPHAN, str(options.db_file), str(options.port)]
    parent = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    orphan = psutil.Process(int(await parent.stdout.readline()))
    parent.kill()
    await parent.wait()
    await asyncio.to_thread(orphan.wait, 60)
    async with run_server(options) as server:
        await check_server(await server.connect())


async def test_server_has_its_own_process_group(server: ServerHandle) -> None:
    assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


async def test_cancelled_start_leaves_nothing_running(tmp_path: Path) -> None:
    """The next start must find port and file free."""
    options = options_in(tmp_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await start_server(options)
    async with run_server(options) as server:
        assert await server.connect()


async def test_incomplete_database_of_ours_is_created_again(tmp_path: Path) -> None:
    """A server killed during its first tables could never start on that file again."""
    options = options_in(tmp_path)
    half_made(options)
    options.new_database_mark.touch()
    async with run_server(options) as server:
        assert not options.new_database_mark.exists()
        waiting = await leave_waiting(await server.connect())
    async with run_server(options) as server:
        assert await is_running(await server.connect(), waiting)


async def test_foreign_database_is_never_removed(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    half_made(options)
    with pytest.raises(ServerUnavailable, match=r"ended while starting"):
        await start_server(options)
    with contextlib.closing(sqlite3.connect(options.db_file)) as database:
        assert database.execute("select count(*) from schema_version").fetchone() == (0,)


async def test_temporal_ui_answers(tmp_path: Path) -> None:
    options = replace(options_in(tmp_path), ui_port=free_port())
    async with run_server(options) as server:
        assert server.ui_url == f"http://127.0.0.1:{options.ui_port}"
        reader, writer = await asyncio.open_connection("127.0.0.1", options.ui_port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await reader.readline()
        writer.close()
        await writer.wait_closed()


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = embedded_server._FREE_PORTS[:20]
    monkeypatch.setattr(embedded_server, "_FREE_PORTS", ports)
    monkeypatch.setattr(embedded_server, "_GIVEN_PORTS", set())
    given = [free_port() for _ in ports[10:]]
    assert len(set(given)) == len(given)


async def test_second_server_on_one_file_is_refused(server: ServerHandle) -> None:
    with pytest.raises(ServerUnavailable, match=r"another embedded server already works on .*SIGNOFF_STATE_DIR"):
        await start_server(replace(server.options, port=free_port()))


async def test_port_in_use_is_named_with_its_setting(tmp_path: Path) -> None:
    options = options_in(tmp_path)
    with taken_port() as port:
        with pytest.raises(ServerUnavailable, match=rf"port {port} is in use.*SIGNOFF_TEMPORAL_PORT.*--address"):
            await start_server(replace(options, port=port))
        with pytest.raises(ServerUnavailable, match=rf"port {port} is in use.*SIGNOFF_UI_PORT"):
            await start_server(replace(options, ui_port=port))


async def test_output_of_a_failed_program_is_quoted(tmp_path: Path) -> None:
    program = tmp_path / "temporal"
    program.write_text("#!/bin/sh\necho unknown flag: --ip\nexit 2\n")
    program.chmod(0o755)
    with pytest.raises(ServerUnavailable, match=r"ended while starting \(`unknown flag: --ip`\): see .*server\.log"):
        await start_server(replace(options_in(tmp_path), binary=program))


async def test_unwritable_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"`.*file/state` cannot be written .*SIGNOFF_STATE_DIR"):
        await start_server(options_in(tmp_path / "file" / "state"))


def test_missing_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for path in (tmp_path / "nothing", tmp_path / "plain"):
        with pytest.raises(ConfigError, match=rf"`{path}` is not there or not executable: correct SIGNOFF_TEMPORAL_"):
            find_temporal(path)


def test_program_is_searched_next_to_python_and_then_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, on_path = tmp_path / "beside", tmp_path / "path"
    for folder in (beside, on_path):
        folder.mkdir()
        (folder / "temporal").write_text("")
        (folder / "temporal").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(on_path))
    assert find_temporal() == beside / "temporal"
    (beside / "temporal").unlink()
    assert find_temporal() == on_path / "temporal"
    (on_path / "temporal").unlink()
    assert find_temporal() is None


async def test_downloaded_program_is_reused(tmp_path: Path) -> None:
    program = find_temporal()
    assert program is not None
    kept = tmp_path / f"temporal-sdk-python-{version('temporalio')}"
    kept.symlink_to(program)
    assert await download_temporal(tmp_path) == kept


def test_arguments_follow_the_options(tmp_path: Path) -> None:
    plain = server_arguments(options_in(tmp_path))
    assert "synchronous=NORMAL" in plain
    assert "--headless" in plain
    assert not any("TimeSkipping" in word for word in plain)
    full = server_arguments(replace(options_in(tmp_path), durable=True, ui_port=8233, time_skipping=True))
    assert "synchronous=FULL" in full
    assert "--headless" not in full
    assert full[full.index("--ui-port") + 1] == "8233"
    assert "frontend.WorkflowTimeSkippingEnabled=true" in full


async def test_missing_search_attributes_are_named_with_the_remedy(server: ServerHandle) -> None:
    client = await bare_namespace(server)
    with pytest.raises(ConfigError) as caught:
        await check_server(client)
    message = caught.value.message
    assert all(name in message.partition("`temporal")[0] for name in SEARCH_ATTRIBUTES)
    command = message.split("`")[-2].split()
    program = find_temporal()
    assert program is not None
    assert command.pop(0) == program.name
    repair = await asyncio.create_subprocess_exec(
        program, *command, "--address", server.address, stdout=subprocess.DEVNULL
    )
    assert await repair.wait() == 0
    await check_server(client)


async def test_ensuring_search_attributes_may_be_repeated(server: ServerHandle) -> None:
    client = await bare_namespace(server)
    request = ListSearchAttributesRequest(namespace=client.namespace)
    await ensure_search_attributes(client)
    first = await client.operator_service.list_search_attributes(request)
    await ensure_search_attributes(client)
    again = await client.operator_service.list_search_attributes(request)
    assert dict(again.custom_attributes) == dict(first.custom_attributes)
    await check_server(client)


async def test_search_attribute_of_another_type_is_refused(server: ServerHandle) -> None:
    client = await bare_namespace(server)
    wrong = {"SignoffState": IndexedValueType.INDEXED_VALUE_TYPE_TEXT}
    request = AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wrong)
    await client.operator_service.add_search_attributes(request)
    for ask in (check_server, ensure_search_attributes):
        with pytest.raises(ConfigError, match=r"`SignoffState` .*must be a Keyword but has another type"):
            await ask(client)


async def test_retention_is_read_back(server: ServerHandle) -> None:
    client = await bare_namespace(server)
    assert await read_retention(client) == timedelta(days=1)
    await set_retention(client, 400)
    assert await read_retention(client) == timedelta(days=400)


async def test_unknown_namespace_is_named_with_the_command_that_creates_it(server: ServerHandle) -> None:
    client = await connect(server.address, "nowhere")
    with pytest.raises(ConfigError, match="no namespace `nowhere`: create it with `temporal operator namespace create"):
        await check_server(client)


async def test_lost_server_is_reported_as_unavailable(tmp_path: Path) -> None:
    async with run_server(options_in(tmp_path)) as server:
        client = await server.connect()
    with pytest.raises(ServerUnavailable):
        await check_server(client)


async def test_address_comes_from_temporals_variables(clean_env: pytest.MonkeyPatch, server: ServerHandle) -> None:
    clean_env.setenv("TEMPORAL_ADDRESS", server.address)
    clean_env.setenv("TEMPORAL_NAMESPACE", "default")
    await check_server(await connect())
    clean_env.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    clean_env.setenv("TEMPORAL_NAMESPACE", "other")
    assert (await connect(server.address)).namespace == "other"
    assert (await connect(server.address, "default")).namespace == "default"
    assert (await server.connect()).namespace == "default"


async def test_missing_server_is_reported_in_one_sentence(clean_env: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(ServerUnavailable, match=rf"no Temporal server answers at `{address}`: start one with `signoff"):
        await connect(address)
    with taken_port() as port, pytest.raises(ServerUnavailable, match=f"answers at `127.0.0.1:{port}`"):
        await connect(f"127.0.0.1:{port}", timeout_seconds=0.3)
    assert DEFAULT_ADDRESS.endswith(":7233")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TEMPORAL_PROFILE", "nope", r"`TEMPORAL_\*`\) cannot be read.*nope"),
        ("TEMPORAL_TLS_SERVER_CA_CERT_PATH", "nope.pem", r"`TEMPORAL_\*`\) cannot be read.*nope.pem"),
        ("TEMPORAL_ADDRESS", "no address", "`no address` is no address of a Temporal server.*host:port"),
    ],
)
async def test_wrong_connection_settings_are_named(
    clean_env: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    clean_env.setenv(variable, value)
    with pytest.raises(ConfigError, match=words):
        await connect()
