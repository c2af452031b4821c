import asyncio
import itertools
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import compose_spec
import httpx2
import pytest
import yaml
from compose_box import PASSWORDS, RAW, ROOT, Box, read_compose, running_box
from polling import pauses
from pydantic_core import from_json
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest, RemoveSearchAttributesRequest

from signoff.settings import Settings
from signoff.temporal.embedded_server import (
    ServerOptions,
    find_temporal,
    free_port,
    hidden_ui_address,
    run_server,
    server_arguments,
)
from signoff.temporal.server_connection import SEARCH_ATTRIBUTES

COMPOSE: dict[str, Any] = read_compose(PASSWORDS)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"database", "temporal-schema", "temporal-namespace", "signoff-init"}
PROCESSES = ("signoff-worker", "signoff-gateway", "signoff-codec")


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Box]:
    async with running_box(tmp_path_factory.mktemp("box")) as begun:
        await begun.run("database")
        await begun.run("temporal-namespace")
        yield begun


def test_compose_file_is_valid_by_the_specification() -> None:
    text = re.sub(r"\$\{(\w+):([-+?])([^}]*)\}", lambda each: each[3] if each[2] == "-" and each[3] else each[1], RAW)
    read = compose_spec.PyOptions(apply_merge=True).from_yaml(text)
    read.validate()
    assert set(SERVICES) > ONE_SHOT


@pytest.mark.parametrize("name", sorted(PASSWORDS))
def test_no_password_has_a_default(name: str) -> None:
    with pytest.raises(KeyError, match=f"write {name}=... into .env"):
        read_compose({each: value for each, value in PASSWORDS.items() if each != name})
    assert RAW.count(f"${{{name}:?") == RAW.count(f"${{{name}")
    assert name.removesuffix("_PASSWORD") in RAW.partition("do\n")[0], "the command that makes .env makes it"


def test_every_port_is_on_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_data_is_in_named_volumes() -> None:
    used = {v.partition(":")[0] for service in SERVICES.values() for v in service.get("volumes", ())}
    assert used == set(COMPOSE["volumes"])


def test_each_process_mounts_only_its_own_volume() -> None:
    reach = {name: {v.partition(":")[0] for v in SERVICES[name]["volumes"]} for name in (*PROCESSES, "signoff-init")}
    assert all(reach[name] == {name} for name in PROCESSES)
    assert reach["signoff-init"] == set(PROCESSES)


def test_each_service_gets_only_its_own_password() -> None:
    told = {
        name: {each for each, secret in PASSWORDS.items() if secret in str(service.get("environment", ""))}
        for name, service in SERVICES.items()
    }
    assert told == {
        "postgres": {"POSTGRES_PASSWORD"},
        "database": set(PASSWORDS),
        "temporal-schema": {"TEMPORAL_PASSWORD"},
        "temporal": {"TEMPORAL_PASSWORD"},
        "temporal-namespace": set(),
        "temporal-ui": set(),
        "signoff-temporal-ui": set(),
        "signoff-init": {"OWNER_PASSWORD"},
        "signoff-worker": {"WORKER_PASSWORD"},
        "signoff-gateway": {"GATEWAY_PASSWORD"},
        "signoff-codec": {"GATEWAY_PASSWORD"},
    }


def test_long_running_service_is_checked_and_restarted() -> None:
    for name, service in SERVICES.items():
        assert service["restart"] == ("on-failure" if name in ONE_SHOT else "unless-stopped"), name
        for other, how in service.get("depends_on", {}).items():
            expected = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
            assert how["condition"] == expected, (name, other)
            assert other in ONE_SHOT or "healthcheck" in SERVICES[other]
    assert set(PROCESSES) <= {name for name, s in SERVICES.items() if "healthcheck" in s}


def test_versions_equal_the_embedded_servers() -> None:
    binary = find_temporal()
    assert binary is not None
    found = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    server, ui = re.findall(r"Server (\S+), UI ([\d.]+)", found)[0]
    assert SERVICES["temporal"]["image"] == f"temporalio/server:{server}"
    assert SERVICES["temporal-schema"]["image"] == f"temporalio/admin-tools:{server}"
    assert SERVICES["temporal-namespace"]["image"] == f"temporalio/admin-tools:{server}"
    assert SERVICES["temporal-ui"]["image"] == f"temporalio/ui:{ui}"


@pytest.mark.parametrize("name", sorted(ONE_SHOT))
def test_scripts_are_valid_shell(name: str) -> None:
    script = SERVICES[name]["command"][0]
    parsed = subprocess.run(["sh", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


def test_no_setting_of_sign_ins_and_tenants_is_missing_in_the_environment() -> None:
    """Without its tenant claim a process would silently admit all logins to `main`, and without its limits it would
    have none."""
    settings = {f"SIGNOFF_{name.upper()}" for name in Settings.model_fields if name.startswith(("oidc_", "tenant_"))}
    secret = {"SIGNOFF_OIDC_CLIENT_SECRET"}
    given = {name: f"of {name}" for name in settings - secret}
    services = read_compose(PASSWORDS | given)["services"]
    for name in (*PROCESSES, "signoff-init"):
        told = services[name]["environment"]
        assert {each: told.get(each) for each in given} == given, name
    assert secret <= set(services["signoff-gateway"]["environment"])


def test_every_environment_variable_is_a_setting() -> None:
    """A misspelt SIGNOFF_ variable would silently have no effect in the box."""
    services = ("signoff-init", "signoff-temporal-ui", *PROCESSES)
    from_file = {name for each in services for name in SERVICES[each]["environment"] if name.startswith("SIGNOFF_")}
    code = "from signoff.settings import Settings; print(*Settings.model_fields)"
    fields = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert from_file <= {f"SIGNOFF_{field.upper()}" for field in fields}
    assert all(SERVICES[each]["environment"]["SIGNOFF_PROFILE"] == "production" for each in services)


def test_image_has_the_directories_of_the_volumes() -> None:
    made = re.findall(r"install -d -o signoff -g signoff -m 700 (.*)", (ROOT / "Dockerfile").read_text())[0].split()
    assert {v.partition(":")[2] for v in SERVICES["signoff-init"]["volumes"]} == set(made)


def test_temporal_ui_reads_through_the_codec_server() -> None:
    ui, codec = SERVICES["temporal-ui"]["environment"], SERVICES["signoff-codec"]["environment"]
    assert ui["TEMPORAL_CODEC_ENDPOINT"] == codec["SIGNOFF_CODEC_URL"]
    assert (ui["TEMPORAL_CODEC_INCLUDE_CREDENTIALS"], ui["TEMPORAL_DISABLE_WRITE_ACTIONS"]) == ("true", "true")
    urls = [httpx2.URL(codec[f"SIGNOFF_{name}"]) for name in ("PUBLIC_URL", "CODEC_URL", "TEMPORAL_UI")]
    assert {url.host for url in urls} == {"127.0.0.1"}
    published = [port.rpartition(":")[0].partition(":")[2] for s in SERVICES.values() for port in s.get("ports", ())]
    assert {str(url.port) for url in urls} <= set(published)


def test_metrics_are_reachable_only_on_the_network() -> None:
    for name in ("signoff-worker", "signoff-gateway"):
        told = SERVICES[name]["environment"]
        assert (told["SIGNOFF_METRICS_HOST"], SERVICES[name]["expose"]) == ("0.0.0.0", [told["SIGNOFF_METRICS_PORT"]])
        assert not any(told["SIGNOFF_METRICS_PORT"] in port for port in SERVICES[name].get("ports", ()))
    assert {SERVICES[name]["environment"]["SIGNOFF_LOG"] for name in PROCESSES} == {"json"}
    told = read_compose(PASSWORDS | {"SIGNOFF_LOG": "text"})["services"]["signoff-codec"]["environment"]
    assert told["SIGNOFF_LOG"] == "text"


def test_temporal_enables_the_same_options_as_the_embedded_server() -> None:
    embedded = server_arguments(ServerOptions(Path("temporal.db"), port=1, ui_port=None, fair=True))
    switched = {word.removesuffix("=true") for word in embedded if re.fullmatch(r"[\w.]+=true", word)}
    file = SERVICES["temporal"]["environment"]["DYNAMIC_CONFIG_FILE_PATH"]
    (source,) = [each["source"] for each in SERVICES["temporal"]["configs"] if each["target"] == file]
    values = yaml.safe_load(COMPOSE["configs"][source]["content"])
    on = {name for name, given in values.items() if given == [{"value": True, "constraints": {}}]}
    assert on == switched == {"matching.enableFairness", "system.enableActivityEagerExecution"}
    (closed,) = values["frontend.httpAllowedHosts"]
    assert [name.endswith(".invalid") for name in closed["value"]] == [True]


def test_temporal_ui_is_reachable_only_through_the_proxy() -> None:
    ui, proxy = SERVICES["temporal-ui"], SERVICES["signoff-temporal-ui"]
    assert ("ports" in ui, ui["networks"]) == (False, ["temporal-ui"])
    assert COMPOSE["networks"]["temporal-ui"] == {
        "internal": True,
        "driver_opts": {"com.docker.network.bridge.inhibit_ipv4": "true"},
    }
    members = {name for name, service in SERVICES.items() if "temporal-ui" in service.get("networks", ())}
    assert members == {"temporal-ui", "signoff-temporal-ui", "temporal"}
    assert proxy["ports"] == ["127.0.0.1:8080:8080"]
    assert (
        proxy["environment"]["SIGNOFF_TEMPORAL_UI"] == SERVICES["signoff-codec"]["environment"]["SIGNOFF_TEMPORAL_UI"]
    )


@pytest.mark.postgres
async def test_namespace_script_prepares_a_server_and_may_repeat(box: Box, tmp_path: Path) -> None:
    options = ServerOptions(tmp_path / "temporal.db", port=free_port(), ui_port=None)
    async with run_server(options) as server:
        operator = (await server.connect()).operator_service
        attributes = set(SEARCH_ATTRIBUTES)
        await operator.remove_search_attributes(
            RemoveSearchAttributesRequest(namespace="default", search_attributes=list(attributes))
        )
        listing = ListSearchAttributesRequest(namespace="default")
        assert not attributes & set((await operator.list_search_attributes(listing)).custom_attributes)
        there = Box(box.folder, box.postgres, server, {})
        for _ in range(2):
            await there.run("temporal-namespace")
            assert attributes <= set((await operator.list_search_attributes(listing)).custom_attributes)


@pytest.mark.postgres
async def test_database_script_may_repeat_and_accepts_new_passwords(box: Box) -> None:
    changed = Box(box.folder, box.postgres, box.server, {"WORKER_PASSWORD": "anotherpassword"})
    await changed.run("database")
    assert await _connects(box, "signoff_worker", "anotherpassword", "postgres") == "signoff_worker"
    with pytest.raises(asyncpg.InvalidPasswordError):
        await _connects(box, "signoff_worker", PASSWORDS["WORKER_PASSWORD"], "postgres")
    await box.run("database")
    assert await _connects(box, "temporal", PASSWORDS["TEMPORAL_PASSWORD"], "temporal_visibility") == "temporal"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await _connects(box, "temporal", PASSWORDS["TEMPORAL_PASSWORD"], "signoff")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await _connects(box, "signoff_worker", PASSWORDS["WORKER_PASSWORD"], "temporal")


@pytest.mark.postgres
@pytest.mark.timeout(300)
async def test_first_start_creates_keys_and_a_token_even_if_killed(box: Box) -> None:
    gateway, worker, codec = (box.volume(name) for name in ("signoff-gateway", "signoff-worker", "signoff-codec"))
    for number in range(1, 5):
        # The first `number` of its calls of `signoff` succeed, and no later one happens.
        await _killed_at(box, number)
        if number == 2:
            # As if `keys create` were killed between its two files.
            (gateway / "encryption-keys.json").unlink()
    assert (gateway / "first-token.made").exists() is False
    await box.run("signoff-init")
    signing = from_json((gateway / "signing-keys.json").read_bytes())["keys"]
    encrypting = (gateway / "encryption-keys.json").read_bytes()
    assert (len(signing), len(from_json(encrypting)["keys"])) == (1, 1)
    assert {path.name for path in worker.iterdir()} == {"public-keys.json", "encryption-keys.json"}
    assert {path.name for path in codec.iterdir()} == {"public-keys.json", "encryption-keys.json"}
    for each in (worker, codec):
        assert (each / "encryption-keys.json").read_bytes() == encrypting
        assert (each / "encryption-keys.json").stat().st_mode & 0o777 == 0o600
        assert signing[0]["private"] not in (each / "public-keys.json").read_text()
    token = (gateway / "first-token").read_text().strip()
    assert ((gateway / "first-token").stat().st_mode & 0o777, token.startswith("sgf_")) == (0o600, True)
    before = {path: path.read_bytes() for path in gateway.rglob("*") if path.is_file()}
    (gateway / "first-token").unlink()
    await box.run("signoff-init")
    del before[gateway / "first-token"]
    assert {path: path.read_bytes() for path in gateway.rglob("*") if path.is_file()} == before
    key = gateway / "signing-keys.json"
    kept = key.rename(key.with_suffix(".kept"))
    with pytest.raises(AssertionError, match="the volume signoff-gateway has lost its keys"):
        await box.run("signoff-init")
    kept.rename(key)


@pytest.mark.postgres
@pytest.mark.timeout(300)
async def test_processes_start_and_are_healthy(box: Box) -> None:
    await box.run("signoff-init")
    started = {name: await box.start(name) for name in PROCESSES}
    try:
        await asyncio.gather(*(box.healthy(name, each) for name, each in started.items()))
        doctors = [from_json((await box.run(name, "signoff", "doctor", "--json")).encode()) for name in PROCESSES]
        roles = [check["message"] for found in doctors for check in found if check["name"] == "store role"]
        assert roles == ["a worker's", "a gateway's", "a gateway's: a worker does not start with it"]
        assert all(check["ok"] for found in doctors for check in found)
    finally:
        codes = [await each.stop() for each in started.values()]
    assert codes == [0, 0, 0]


@pytest.mark.postgres
@pytest.mark.timeout(300)
async def test_every_published_port_refuses_a_rebound_name(box: Box, tmp_path: Path) -> None:
    await box.run("signoff-init")
    host, port = hidden_ui_address()
    options = ServerOptions(tmp_path / "temporal.db", port=free_port(), ui_host=host, ui_port=port)
    async with run_server(options) as server:
        there = Box(box.folder, box.postgres, server, {}, f"http://{host}:{port}", ports=box.ports)
        await there.run("temporal-namespace")
        published = {"signoff-gateway": "8300", "signoff-codec": "8301", "signoff-temporal-ui": "8080"}
        started = {name: await there.start(name) for name in published}
        try:
            await asyncio.gather(*(there.healthy(name, each) for name, each in started.items()))
            async with httpx2.AsyncClient(timeout=60) as http:
                for name, inside in published.items():
                    base = f"http://127.0.0.1:{there.ports[inside]}"
                    own = await http.get(f"{base}/healthz")
                    rebound = await http.get(f"{base}/healthz", headers={"host": f"evil.example:{inside}"})
                    assert (own.status_code, rebound.status_code) == (200, 421), name
                # Temporal UI waits before it retries a server that was down at its first attempt.
                for seconds in itertools.islice(pauses(), 100):
                    listed = await http.get(f"http://127.0.0.1:{there.ports['8080']}/api/v1/namespaces")
                    if listed.status_code != 503:
                        break
                    await asyncio.sleep(seconds)
                assert "namespaces" in listed.json()
        finally:
            codes = [await each.stop() for each in started.values()]
    assert codes == [0, 0, 0]


async def _connects(box: Box, role: str, password: str, database: str) -> Any:
    connection = await asyncpg.connect(f"postgresql://{role}:{password}@{box.postgres}/{database}")
    try:
        return await connection.fetchval("SELECT current_user")
    finally:
        await connection.close()


async def _killed_at(box: Box, number: int) -> None:
    folder = box.folder / f"killed-{number}"
    folder.mkdir()
    program = folder / "signoff"
    real = Path(sys.executable).with_name("signoff")
    program.write_text(
        f'#!/bin/sh\n"{real}" "$@"\ncode=$?\necho >> "{folder}/calls"\n'
        f'test "$(wc -l < "{folder}/calls")" -lt {number} || kill -9 "$PPID"\nexit $code\n'
    )
    program.chmod(0o700)
    env = box.environment("signoff-init")
    process = await asyncio.create_subprocess_exec(
        *box.command("signoff-init"),
        cwd=folder,
        env=env | {"PATH": f"{folder}{os.pathsep}{env['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    # 137: a shell of the script was killed instead.
    assert process.returncode in (-9, 137), output.decode()
