"""The compose file, as far as it can be checked without an engine, and the programs its containers start."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose_spec
import httpx
import pytest
import yaml
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from signoff.contracts.names import DEFAULT_TASK_QUEUE
from signoff.temporal.embedded_server import ServerHandle, find_temporal, free_port

ROOT = Path(__file__).parent.parent
PASSWORD = re.compile(r"\$\{POSTGRES_PASSWORD:\?[^}]*\}")
TEXT = PASSWORD.sub("test", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"temporal-schema", "temporal-namespace"}


def test_it_is_valid_by_the_compose_specification() -> None:
    """An independent implementation of the specification reads and validates the file."""
    read = compose_spec.PyOptions(apply_merge=True).from_yaml(TEXT)
    read.validate()
    assert set(SERVICES) > ONE_SHOT


def test_no_password_has_a_default() -> None:
    """Compose stops and says what to write when the password is not given."""
    raw = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert "POSTGRES_PASSWORD}" not in raw
    assert raw.count("${POSTGRES_PASSWORD:?") == raw.count("${POSTGRES_PASSWORD")


def test_every_port_is_on_loopback() -> None:
    """Nothing of this box can be reached from another machine."""
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_data_lies_in_named_volumes() -> None:
    """No anonymous volume loses a database when a container is made anew."""
    used = {v.partition(":")[0] for service in SERVICES.values() for v in service.get("volumes", ())}
    assert used == set(COMPOSE["volumes"])


def test_what_runs_long_is_watched_and_restarted() -> None:
    """Every lasting service restarts; every one that others wait for has a health check; one-shots must succeed."""
    for name, service in SERVICES.items():
        assert service["restart"] == ("on-failure" if name in ONE_SHOT else "unless-stopped"), name
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how["condition"] == expected, (name, other)
            assert other in ONE_SHOT or "healthcheck" in SERVICES[other]
    assert {"signoff-worker", "signoff-gateway"} <= {name for name, s in SERVICES.items() if "healthcheck" in s}


def test_the_versions_are_those_the_embedded_server_has() -> None:
    """The box runs the same Temporal and UI as `signoff dev`; server and schema tool are of one version."""
    binary = find_temporal()
    assert binary is not None
    found = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    server, ui = re.findall(r"Server (\S+), UI ([\d.]+)", found)[0]
    assert SERVICES["temporal"]["image"] == f"temporalio/server:{server}"
    assert SERVICES["temporal-schema"]["image"] == f"temporalio/admin-tools:{server}"
    assert SERVICES["temporal-namespace"]["image"] == f"temporalio/admin-tools:{server}"
    assert SERVICES["temporal-ui"]["image"] == f"temporalio/ui:{ui}"


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_the_scripts_are_shell(name: str) -> None:
    """Each one-shot's script parses."""
    parsed = subprocess.run(["sh", "-n", "-c", _script(name)], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


async def test_the_namespace_script_makes_a_server_ready_and_may_run_again(server: ServerHandle) -> None:
    """Run twice with the real `temporal` command against the real server, it succeeds both times."""
    binary = find_temporal()
    assert binary is not None
    env = {"PATH": f"{binary.parent}:{os.environ['PATH']}", "TEMPORAL_ADDRESS": server.address, "HOME": "/tmp"}
    for _ in range(2):
        done = await asyncio.create_subprocess_exec(
            "sh", "-eu", "-c", _script("temporal-namespace"), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        found, _ = await done.communicate()
        assert done.returncode == 0, found.decode()


@pytest.mark.timeout(300)
async def test_the_containers_commands_start(server: ServerHandle, client: Client, tmp_path: Path) -> None:
    """`signoff worker` and `signoff gateway` with the file's own environment, pointed at the session's server."""
    port = free_port()
    given = dict(SERVICES["signoff-gateway"]["environment"]) | {
        "SIGNOFF_MANIFEST": str(ROOT / "examples" / "travel_desk" / "signoff.yaml"),
        "SIGNOFF_STATE_DIR": str(tmp_path),
        "SIGNOFF_STORE_URL": f"sqlite+aiosqlite:///{tmp_path}/signoff.db",
        "SIGNOFF_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "SIGNOFF_HOST": "127.0.0.1",
        "SIGNOFF_PORT": str(port),
        "TEMPORAL_ADDRESS": server.address,
        "TRAVEL_DESK_DB": str(tmp_path / "travel.db"),
    }
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | given
    program = Path(sys.executable).with_name("signoff")
    assert shutil.which(str(program))
    started = [
        await asyncio.create_subprocess_exec(str(program), name, env=env, cwd=tmp_path)
        for name in (SERVICES["signoff-worker"]["command"][0], SERVICES["signoff-gateway"]["command"][0])
    ]
    try:
        async with asyncio.timeout(80), httpx.AsyncClient() as http:
            while not await _healthy(http, f"http://127.0.0.1:{port}/healthz"):
                await asyncio.sleep(0.1)
            while not await _polled(client):
                await asyncio.sleep(0.1)
        assert [process.returncode for process in started] == [None, None]
    finally:
        for process in started:
            if process.returncode is None:
                process.terminate()
        codes = [await process.wait() for process in started]
    assert codes == [0, 0]


def test_every_name_the_environment_gives_is_a_setting() -> None:
    """A misspelt SIGNOFF_ variable would be silently off in the box."""
    from_file = {name for name in SERVICES["signoff-gateway"]["environment"] if name.startswith("SIGNOFF_")}
    code = "from signoff.settings import Settings; print(*Settings.model_fields)"
    fields = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert from_file <= {f"SIGNOFF_{field.upper()}" for field in fields}


def _script(name: str) -> str:
    script: str = SERVICES[name]["command"][0]
    return script.replace("$$", "$")


async def _polled(client: Client) -> bool:
    """Whether a worker asks the server for work; before that it may not even have heard of signals."""
    asked = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=DEFAULT_TASK_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    return bool((await client.workflow_service.describe_task_queue(asked)).pollers)


async def _healthy(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.TransportError:
        return False
