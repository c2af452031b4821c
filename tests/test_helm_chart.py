import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import helm_python
import httpx2
import kubernetes_validate
import pytest
import yaml
from compose_box import PASSWORDS, ROOT, Box, Running, running_box
from documents import blocks
from temporalio.envconfig import ClientConfig

from signoff.contracts.names import VERSION
from signoff.settings import Settings
from signoff.temporal.embedded_server import free_port

CHART: Final = ROOT / "deploy" / "helm" / "signoff"
KUBERNETES: Final = ("1.28", "1.32", "1.37")
VALUES: Final[dict[str, Any]] = {
    "image": {"repository": "registry.example.com/desk"},
    "manifest": "/app/examples/travel_desk/signoff.yaml",
    "peopleConfigMap": "signoff-people",
    "publicUrl": "https://approvals.example.com",
    "codecUrl": "https://approvals.example.com/codec",
    "temporalUi": "https://approvals.example.com/temporal",
    "temporal": {"address": "temporal-frontend.temporal:7233"},
    "secrets": {"owner": "store-owner", "worker": "worker", "gateway": "gateway", "codec": "codec"},
}
CLOUD: Final = {"address": "my.a1b2c.tmprl.cloud:7233", "namespace": "my.a1b2c", "tls": {"enabled": True}}
PLACES: Final = {
    "own cluster": {},
    "cloud by key": {"temporal": CLOUD | {"apiKey": {"secret": "temporal-key"}}},
    "cluster by certificate": {
        "temporal": {
            "tls": {"enabled": True, "serverName": "temporal", "caSecret": "ca", "clientSecret": "client"},
        }
    },
    "with everything": {
        "ingress": {"enabled": True, "className": "nginx", "host": "approvals.example.com", "tlsSecret": "tls"},
        "secrets": {"oidc": {"secret": "oidc"}},
        "settings": {
            "SIGNOFF_OIDC_ISSUER": "https://login.example.com",
            "SIGNOFF_OIDC_CLIENT_ID": "signoff",
            "SIGNOFF_TENANT_LIMITS": "starts=100/minute, waiting=2000; acme: waiting=off",
        },
        "worker": {"env": [{"name": "DESK", "value": "1"}], "envFrom": [{"secretRef": {"name": "models"}}]},
        "podAnnotations": {"prometheus.io/port": "9464"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": "signoff",
    },
}
PLACES_WITH_UI: Final = {"temporalUiProxy": {"upstream": "http://temporal-web.temporal:8080"}}
PROCESSES: Final = ("worker", "gateway", "codec")


def values_with(changes: Mapping[str, Any]) -> dict[str, Any]:
    def merged(old: dict[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
        for key, value in new.items():
            old[key] = merged(old.get(key, {}), value) if isinstance(value, dict) else value
        return old

    return merged(deepcopy(VALUES), changes)


def render(changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values_with(changes))
        files = chart.render(values_with(changes), name="signoff", namespace="approvals")
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def pods(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = [each for each in documents if each["kind"] in ("Deployment", "Job")]
    return {each["metadata"]["name"].removeprefix("signoff-"): each["spec"]["template"]["spec"] for each in found}


@pytest.mark.parametrize("place", PLACES)
def test_helm_lint_finds_no_problem(place: str) -> None:
    report = helm_python.lint(CHART, values_with(PLACES[place]), strict=True)
    assert report["errors"] == []
    assert [each["error"] for each in report["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("place", PLACES)
def test_rendered_chart_fits_the_kubernetes_schemas(place: str, version: str) -> None:
    documents = render(PLACES[place])
    for each in documents:
        kubernetes_validate.validate(each, version, strict=True)
    kinds = [each["kind"] for each in documents]
    assert (kinds.count("Deployment"), kinds.count("PodDisruptionBudget"), kinds.count("Job")) == (3, 3, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"publicURL": "https://x.example.com"}, "publicURL"),
        ({"publicUrl": "approvals"}, "publicUrl"),
        ({"image": {"repository": ""}}, "repository"),
        ({"manifest": "signoff.yaml"}, "manifest"),
        ({"temporal": {"address": "https://temporal"}}, "address"),
        ({"temporal": {"apiKey": {"secret": "key"}}}, "enabled"),
        ({"secrets": {"worker": ""}}, "worker"),
        ({"secrets": {"codec": ""}}, "secrets.codec"),
        ({"secrets": {"owner": ""}}, "secrets.owner"),
        ({"settings": {"OIDC_ISSUER": "x"}}, "OIDC_ISSUER"),
        ({"settings": {"SIGNOFF_PROFILE": "development"}}, "SIGNOFF_PROFILE"),
        ({"settings": {"SIGNOFF_STORE_URL": "sqlite:////tmp/signoff.db"}}, "SIGNOFF_STORE_URL"),
        ({"worker": {"env": [{"name": "SIGNOFF_PROFILE", "value": "development"}]}}, "worker.env.0|worker/env/0"),
        ({"gateway": {"env": [{"name": "SIGNOFF_PUBLIC_KEYS", "value": "/tmp"}]}}, "gateway.env.0|gateway/env/0"),
        ({"worker": {"replicas": 0}}, "replicas"),
        ({"log": "xml"}, "log"),
        ({"settings": {"SIGNOFF_LOG": "text"}}, "SIGNOFF_LOG"),
        ({"metrics": {"podMonitor": {"interval": "often"}}}, "interval"),
        ({"metrics": {"port": 1}}, "port"),
        ({"worker": {"terminationGracePeriodSeconds": 30}}, "terminationGracePeriodSeconds"),
        ({"ingress": {"enabled": True}}, "ingress.host"),
    ],
)
def test_wrong_values_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(helm_python.HelmError, match=words):
        render(changes)


def test_values_cannot_override_the_charts_own_variables() -> None:
    """The last of two variables with one name counts: a second profile would be development."""
    of_pods = [pod["containers"][0]["env"] for changes in PLACES.values() for pod in pods(render(changes)).values()]
    of_chart = {each["name"] for env in of_pods for each in env} - {"DESK", "OIDC_CLIENT_SECRET"}
    of_chart -= set(PLACES["with everything"]["settings"])
    for each in sorted(of_chart):
        with pytest.raises(helm_python.HelmError):
            render({"worker": {"env": [{"name": each, "value": "x"}]}})


def test_pods_have_minimal_permissions() -> None:
    found = pods(render(PLACES["with everything"]))
    assert set(found) == {*PROCESSES, "migration"}
    for pod in found.values():
        (container,) = pod["containers"]
        security = container["securityContext"]
        assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
        assert (security["readOnlyRootFilesystem"], security["allowPrivilegeEscalation"]) == (True, False)
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]) == {"requests", "limits"}
    files = {
        name: {
            item["path"] for volume in pod["volumes"] if volume["name"] == "keys" for item in volume["secret"]["items"]
        }
        for name, pod in found.items()
    }
    assert files == {
        "worker": {"public-keys.json", "encryption-keys.json"},
        "codec": {"public-keys.json", "encryption-keys.json"},
        "gateway": {"signing-keys.json", "encryption-keys.json"},
        "migration": set(),
    }
    stores = {name: secrets_of(pod)["SIGNOFF_STORE_URL"] for name, pod in found.items()}
    assert stores == {"worker": "worker", "gateway": "gateway", "codec": "codec", "migration": "store-owner"}
    assert [name for name, pod in found.items() if "OIDC_CLIENT_SECRET" in secrets_of(pod)] == ["gateway"]


def test_variables_of_a_process_are_known_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place, changes in PLACES.items():
        for name, pod in pods(render(changes)).items():
            told = {each["name"] for each in pod["containers"][0]["env"]}
            settings = {f"SIGNOFF_{field.upper()}" for field in Settings.model_fields}
            assert {each for each in told if each.startswith("SIGNOFF_")} <= settings, (place, name)
    told = plain_env(pods(render(PLACES["cluster by certificate"]))["worker"])
    for each in ("ca.crt", "tls.crt", "tls.key"):
        (tmp_path / each).write_text(each)
    for key, value in told.items():
        if key.startswith("TEMPORAL_"):
            monkeypatch.setenv(key, str(tmp_path / value.rpartition("/")[2]) if key.endswith("_PATH") else value)
    config = ClientConfig.load_client_connect_config()
    tls: Any = config["tls"]
    assert (config["target_host"], tls.domain) == (VALUES["temporal"]["address"], "temporal")
    assert (tls.server_root_ca_cert, tls.client_cert, tls.client_private_key) == (b"ca.crt", b"tls.crt", b"tls.key")
    by_key = pods(render(PLACES["cloud by key"]))["worker"]
    assert secrets_of(by_key)["TEMPORAL_API_KEY"] == "temporal-key"
    assert plain_env(by_key)["TEMPORAL_NAMESPACE"] == "my.a1b2c"


def test_scraper_finds_the_metrics() -> None:
    def deployed(changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
        found = [each for each in render(changes) if each["kind"] == "Deployment"]
        return {each["metadata"]["name"].removeprefix("signoff-"): each["spec"]["template"] for each in found}

    wanted = {"prometheus.io/scrape": "true", "prometheus.io/port": "9464", "prometheus.io/path": "/metrics"}
    found = deployed({})
    for name in ("worker", "gateway"):
        assert found[name]["metadata"]["annotations"] == wanted
        told = plain_env(found[name]["spec"])
        assert (told["SIGNOFF_METRICS_HOST"], told["SIGNOFF_METRICS_PORT"]) == ("0.0.0.0", wanted["prometheus.io/port"])
    assert "annotations" not in found["codec"]["metadata"]
    assert {plain_env(found[name]["spec"])["SIGNOFF_LOG"] for name in PROCESSES} == {"json"}
    off = deployed({"metrics": {"annotations": False}, "podAnnotations": {"a": "b"}})
    assert {name: each["metadata"]["annotations"] for name, each in off.items()} == {
        name: {"a": "b"} for name in PROCESSES
    }
    of_the_user = deployed({"podAnnotations": {"prometheus.io/scrape": "false"}})["worker"]["metadata"]["annotations"]
    assert of_the_user["prometheus.io/scrape"] == "false"
    assert not [each for each in render({}) if each["kind"] == "PodMonitor"]


def test_pod_monitor_selects_the_pods_with_metrics() -> None:
    wanted = {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    made = render({"metrics": {"podMonitor": wanted}})
    (monitor,) = [each for each in made if each["kind"] == "PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    assert expression["operator"] == "In"
    selected = set()
    for each in made:
        template = each["spec"]["template"] if each["kind"] == "Deployment" else None
        if template is None:
            continue
        labels = template["metadata"]["labels"]
        ours = monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        if ours and labels[expression["key"]] in expression["values"]:
            ports = [port["name"] for port in template["spec"]["containers"][0]["ports"]]
            assert endpoint["port"] in ports
            selected.add(labels[expression["key"]])
    assert selected == {"worker", "gateway"}


def test_documented_values_are_valid() -> None:
    (shown,) = [each.text for each in blocks(ROOT / "docs" / "containers.md") if each.file == "values.yaml"]
    values = yaml.safe_load(shown)
    assert helm_python.lint(CHART, values, strict=True)["errors"] == []
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name="signoff", namespace="approvals")
    made = [each for name, text in files.items() if name.endswith(".yaml") for each in yaml.safe_load_all(text) if each]
    for each in made:
        kubernetes_validate.validate(each, KUBERNETES[-1], strict=True)
    assert secrets_of(pods(made)["worker"]) == {
        "SIGNOFF_STORE_URL": "signoff-worker",
        "TEMPORAL_API_KEY": "temporal-key",
    }


def test_proxy_of_temporal_ui_has_no_secret_and_no_ingress() -> None:
    made = render(PLACES["with everything"] | PLACES_WITH_UI)
    for each in made:
        kubernetes_validate.validate(each, KUBERNETES[-1], strict=True)
    pod = pods(made)["temporal-ui"]
    (container,) = pod["containers"]
    assert container["args"] == ["temporal-ui", "http://temporal-web.temporal:8080"]
    told = plain_env(pod)
    assert (told["SIGNOFF_TEMPORAL_UI"], told["SIGNOFF_UI_PORT"]) == (VALUES["temporalUi"], "8080")
    assert set(told) <= {f"SIGNOFF_{field.upper()}" for field in Settings.model_fields}
    assert (secrets_of(pod), {each["name"] for each in pod["volumes"]}) == ({}, {"state", "tmp"})
    (ingress,) = [each for each in made if each["kind"] == "Ingress"]
    assert "temporal-ui" not in str(ingress)
    assert "signoff-temporal-ui" in {each["metadata"]["name"] for each in made if each["kind"] == "Service"}


def test_chart_has_the_current_version() -> None:
    with helm_python.Chart.load(CHART) as chart:
        assert chart.metadata["appVersion"] == VERSION


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Box]:
    async with running_box(tmp_path_factory.mktemp("cluster")) as begun:
        await begun.run("database")
        await begun.run("temporal-namespace")
        await begun.run("signoff-init")
        yield begun


@pytest.mark.postgres
@pytest.mark.rehearsal
@pytest.mark.timeout(300)
async def test_commands_run_and_probes_succeed(box: Box) -> None:
    temporal = {"address": box.server.address, "namespace": "default"}
    found = pods(render({"temporal": temporal, "publicUrl": "http://127.0.0.1:1", "codecUrl": "http://127.0.0.1:2"}))
    cluster = Cluster(box)
    migration = await cluster.start("migration", found["migration"])
    assert await migration.process.wait() == 0, migration.log.read_text()
    running = {name: await cluster.start(name, found[name]) for name in PROCESSES}
    try:
        for name, process in running.items():
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                await cluster.probed(name, found[name], probe, process)
    finally:
        codes = await asyncio.gather(*(each.stop() for each in running.values()))
    assert codes == [0, 0, 0]
    # Only the mounted directory is written.
    assert {each.name for name in PROCESSES for each in (cluster.folder / name).iterdir()} == {"log", "state"}


class Cluster:
    """Secrets and ConfigMaps are files, and each pod has its own ports."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self.folder = box.folder / "pods"
        self._ports: dict[tuple[str, int], int] = {}

    async def start(self, name: str, pod: dict[str, Any]) -> Running:
        (container,) = pod["containers"]
        env = self._box.environment("signoff-init")
        told = {"PATH": env["PATH"], "HOME": env["HOME"]}
        for each in container["env"]:
            told[each["name"]] = self._here(name, pod, each.get("value") or self._secret(each))
        log = self.folder / name / "log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as words:
            process = await asyncio.create_subprocess_exec(
                *("signoff", *container["args"]), cwd=log.parent, env=told, stdout=words, stderr=words
            )
        return Running(process, log)

    async def probed(self, name: str, pod: dict[str, Any], probe: str, running: Running) -> None:
        asked = pod["containers"][0][probe]["httpGet"]
        (number,) = [each["containerPort"] for each in pod["containers"][0]["ports"] if each["name"] == asked["port"]]
        headers = {each["name"]: each["value"] for each in asked["httpHeaders"]}
        url = f"http://127.0.0.1:{self._port(name, number)}{asked['path']}"
        async with asyncio.timeout(90), httpx2.AsyncClient(headers=headers, timeout=60) as http:
            while True:
                assert running.process.returncode is None, running.log.read_text()
                try:
                    if (await http.get(url)).status_code == 200:
                        return
                except httpx2.TransportError:
                    pass
                await asyncio.sleep(0.2)

    def _port(self, name: str, number: int) -> int:
        return self._ports.setdefault((name, number), free_port())

    def _secret(self, each: dict[str, Any]) -> str:
        named = each["valueFrom"]["secretKeyRef"]
        assert named["key"] == "store-url"
        role = {"store-owner": "owner", "codec": "gateway"}.get(named["name"], named["name"])
        return f"postgresql://signoff_{role}:{PASSWORDS[f'{role.upper()}_PASSWORD']}@{self._box.postgres}/signoff"

    def _here(self, name: str, pod: dict[str, Any], text: str) -> str:
        people = self._box.environment("signoff-init")["SIGNOFF_PEOPLE"]
        keys = self._box.volume("signoff-gateway")
        mounts = {
            "/var/lib/signoff": str(self.folder / name),
            "/etc/signoff/people/people.yaml": people,
            "/app": str(ROOT),
        }
        for item in key_items(pod):
            mounts[f"/etc/signoff/keys/{item['path']}"] = str(keys / item["key"])
        for place, there in mounts.items():
            text = text.replace(place, there)
        text = "127.0.0.1" if text == "0.0.0.0" else text
        return str(self._port(name, int(text))) if re.fullmatch(r"8300|8301|9464", text) else text


def key_items(pod: dict[str, Any]) -> list[dict[str, str]]:
    return [item for volume in pod["volumes"] if volume["name"] == "keys" for item in volume["secret"]["items"]]


def secrets_of(pod: dict[str, Any]) -> dict[str, str]:
    refs = ((each["name"], each.get("valueFrom")) for each in pod["containers"][0]["env"])
    return {name: ref["secretKeyRef"]["name"] for name, ref in refs if ref is not None}


def plain_env(pod: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in pod["containers"][0]["env"] if "value" in each}
