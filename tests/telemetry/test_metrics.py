import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import httpx2
import pytest
from documents import names, tables
from gateway_rig import PASSWORD, GatewayRig, gateway_rig
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from tables import table
from temporalio.client import Client
from turn_fixtures import TurnRig

from signoff.audit.log import counts_from_entry
from signoff.contracts.audit import AuditEntry, AuditKind
from signoff.contracts.errors import ConfigError, ServerUnavailable
from signoff.contracts.ids import TurnKey
from signoff.engine.metrics_endpoint import MetricsEndpoint, StoreGauges, gauges_from_backlog
from signoff.engine.worker_watch import WorkerWatch
from signoff.gateway.events.event_task import TurnEndRecorder
from signoff.registry import extras
from signoff.settings import Settings
from signoff.store.gauges.backlog_reader import Backlog, BacklogReader, RequestBacklog
from signoff.store.gauges.backlog_readings import BacklogReadings
from signoff.store.store import Store
from signoff.telemetry.counts import Count, Gauges, HistogramCounts, ProcessCounts
from signoff.telemetry.exposition import write_metrics
from signoff.telemetry.metric_table import AGES, LABEL_SETS, METRICS, OTHER, TENANTS
from signoff.temporal.embedded_server import free_port

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SUFFIX = {"counter": "_total", "info": "_info"}
QUEUES = {"cards", "card_endings", "arrivals", "answers", "events", "dead_events"}


@pytest.fixture
async def rig(client: Client, store: Store) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, f"metrics-{uuid.uuid4().hex[:12]}") as found:
        yield found


NO_GAUGES = Gauges({}, {})


def families(counts: ProcessCounts, gauges: Gauges = NO_GAUGES) -> dict[str, Metric]:
    kind, body = write_metrics(counts, gauges, (), ("1.2.3", "gateway"), OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def samples(family: Metric, suffix: str = "") -> dict[tuple[str, ...], float]:
    named = f"{family.name}{suffix}"
    labels = METRICS[family.name].labels
    return {tuple(each.labels[label] for label in labels): each.value for each in family.samples if each.name == named}


async def measured(store: Store) -> Gauges:
    return gauges_from_backlog(await BacklogReader(store).read(), store.counts.tenants)


async def test_turn_is_counted_with_its_request_answer_and_call(rig: GatewayRig) -> None:
    approval = await rig.asked("login")
    waiting = families(rig.deps.store.counts, await measured(rig.deps.store))
    assert samples(waiting["signoff_waiting_requests"]) == {("main",): 1.0}
    assert samples(waiting["signoff_waiting_requests_oldest_age_seconds"])[("main",)] >= 0
    assert samples(waiting["signoff_waiting_requests_age_seconds"], "_gcount") == {(): 1.0}
    assert samples(waiting["signoff_decisions"], "_total") == {}
    receipt = await rig.decide(approval, verdict="approved", revision=1, **{"as": "approver"})
    assert receipt.json()["status"] in ("accepted", "pending")
    repeated = await rig.decide(approval, verdict="denied", revision=1, **{"as": "gone"})
    assert repeated.json()["status"] == "refused"
    await rig.turns.signoff.result(TurnKey(*approval.split(".")[:3]))
    # The server's list lags behind its answers.
    while not await TurnEndRecorder(rig.deps).step():
        await asyncio.sleep(0.05)
    found = families(rig.deps.store.counts, await measured(rig.deps.store))
    assert samples(found["signoff_turns_started"], "_total") == {("main",): 1.0}
    assert samples(found["signoff_turns_ended"], "_total") == {("main", "complete"): 1.0}
    assert samples(found["signoff_gate_outcomes"], "_total") == {("asked", "approval"): 1.0}
    assert samples(found["signoff_decisions"], "_total")[("api", "approved", "accepted")] == 1.0
    assert samples(found["signoff_decision_wait_seconds"], "_count") == {("approved",): 1.0}
    assert samples(found["signoff_tool_calls"], "_total") == {("login", "ok"): 1.0}
    assert samples(found["signoff_tool_call_duration_seconds"], "_count") == {("login",): 1.0}
    assert samples(found["signoff_model_requests"], "_total") == {("scripted", "ok"): 2.0}
    assert samples(found["signoff_waiting_requests"]) == {("main",): 0.0}
    shown = write_metrics(rig.deps.store.counts, Gauges({}, {}), (), ("1", "dev"), OPENMETRICS)[1].decode()
    assert PASSWORD not in shown
    assert approval.split(".")[2] not in shown


async def test_denials_by_rule_and_failures_are_counted_separately(rig: GatewayRig) -> None:
    for words in ("small", "refund"):
        await rig.turns.signoff.result(await rig.start(words))
    found = families(rig.deps.store.counts)
    outcomes = samples(found["signoff_gate_outcomes"], "_total")
    assert outcomes == {("allowed", "approval"): 1.0, ("denied", "approval"): 1.0}
    assert samples(found["signoff_tool_calls"], "_total") == {("small", "ok"): 1.0}


async def test_refused_input_is_counted_by_kind(rig: GatewayRig) -> None:
    rig.deps.store.count_refusal("forged")
    rig.deps.store.count_refusal("forged")
    assert samples(families(rig.deps.store.counts)["signoff_refused_inputs"], "_total") == {("forged",): 2.0}


@table(
    ("kind", "facts", "counts"),
    ("turn", {"by": "turn", "session_event": "turn"}, []),
    ("turn", {"stop": "asked"}, []),
    ("turn", {"by": "turn", "ended": "error", "error": "x"}, [("signoff_turns_ended", ("main", "error"))]),
    ("turn", {"by": "turn", "ended": "terminated"}, [("signoff_turns_ended", ("main", "terminated"))]),
    ("turn", {"by": "turn", "ended": "no state"}, [("signoff_turns_ended", ("main", OTHER))]),
    ("attempt", {"by": "turn", "verdict": "approved", "status": "accepted"}, []),
    (
        "attempt",
        {"verdict": "approved", "status": "refused", "receipt": "stale", "channel": "slack"},
        [("signoff_decisions", ("slack", "approved", "stale"))],
    ),
    ("attempt", {"body": "cafe", "channel": "api", "status": "refused"}, []),
    ("revision", {"approvers": ["a"], "edited_by": "ana"}, []),
    ("revision", {"approvers": ["a"]}, [("signoff_gate_outcomes", ("asked", "approval"))]),
    ("in_doubt", {"probe": "happened"}, []),
    ("grant", {"act": "revoke"}, []),
    ("grant", {"grant": "g"}, [("signoff_gate_outcomes", ("remembered", "approval"))]),
    ("outcome", {"untaken": "full", "tool": "pay"}, []),
    ("delivery", {"event": "sent", "channel": "mail"}, [("signoff_card_deliveries", ("mail", "sent"))]),
    ("delivery", {"event": "not closed", "channel": "m"}, [("signoff_card_deliveries", ("m", "not_closed"))]),
    ("delivery", {"event": "remind"}, [("signoff_request_deadlines", ("remind",))]),
    ("delivery", {"event": "remind", "by": "turn"}, []),
    ("delivery", {"event": "opened", "channel": "link"}, []),
    ("ending", {"state": "timed_out"}, [("signoff_request_deadlines", ("expired",))]),
    ("ending", {"state": "approved"}, []),
)
def test_each_kind_of_entry_counts_once(
    kind: AuditKind, facts: dict[str, object], counts: list[tuple[str, tuple[str, ...]]]
) -> None:
    entry = AuditEntry(key="k", kind=kind, at=datetime.now(UTC), tenant="main", data=facts)
    assert [(each.metric, each.labels) for each in counts_from_entry(entry)] == counts


def test_number_of_series_is_limited_for_any_labels() -> None:
    counts = ProcessCounts()
    for number in range(LABEL_SETS + 50):
        counts.add([Count("signoff_turns_started", (f"t{number}",)), Count("signoff_refused_inputs", (str(number),))])
    started = counts.counters["signoff_turns_started"]
    assert (len(started), started[OTHER,]) == (TENANTS + 1, LABEL_SETS + 50 - TENANTS)
    refused = counts.counters["signoff_refused_inputs"]
    assert (len(refused), refused[OTHER,]) == (LABEL_SETS + 1, 50.0)
    waiting = {
        f"u{number}": RequestBacklog(requests=1, oldest_seconds=2, total_seconds=2, by_age=(1, *(0 for _ in AGES)))
        for number in range(3)
    }
    found = gauges_from_backlog(Backlog(requests=waiting, queues={}, frozen=0), counts.tenants)
    assert found.values["signoff_waiting_requests"][OTHER,] == 3.0
    assert found.values["signoff_waiting_requests"]["t0",] == 0.0


def test_invented_tenants_do_not_displace_declared_ones() -> None:
    counts = ProcessCounts()
    counts.tenants.declare(("main", "acme"))
    for name in (*(f"t{number}" for number in range(TENANTS + 1)), "acme", "main"):
        counts.count("signoff_turns_started", name)
    started = counts.counters["signoff_turns_started"]
    assert (started["main",], started["acme",], started[OTHER,]) == (1.0, 1.0, 3.0)
    assert len(started) == TENANTS + 1


async def test_gateway_declares_the_tenants_of_its_people(rig: GatewayRig) -> None:
    labels = rig.deps.store.counts.tenants
    for number in range(TENANTS + 1):
        labels.label(f"t{number}")
    assert {labels.label(person.tenant) for person in rig.deps.people.all()} == {"main"}
    assert labels.label("made-up") == OTHER


async def test_gateway_shows_the_last_measurement_and_its_age(store: Store) -> None:
    gauges = StoreGauges(store, reads=True)
    assert await gauges.read() == Gauges({"signoff_store_up": {(): 1.0}}, {})
    assert await BacklogReadings(store).renew()
    found = await gauges.read()
    assert found.values["signoff_queue_entries"]["cards",] == 0.0
    assert 0 <= found.values["signoff_backlog_age_seconds"][()] < 60
    await store.close()
    assert await gauges.read() == Gauges({"signoff_store_up": {(): 0.0}}, {})


async def test_worker_reads_no_store_gauges(store: Store) -> None:
    assert await StoreGauges(store, reads=False).read() == Gauges({}, {})


async def test_scrape_is_answered_in_both_formats(store: Store) -> None:
    port = free_port()
    settings = Settings(metrics_port=port)
    store.counts.count("signoff_refused_inputs", "late")
    endpoint = MetricsEndpoint(settings)
    async with endpoint.serve(store, "gateway"), httpx2.AsyncClient(timeout=60) as http:
        at = f"http://127.0.0.1:{port}"
        assert [(await http.get(f"{at}/{path}")).status_code for path in ("healthz", "readyz")] == [200, 503]
        endpoint.is_ready = True
        assert (await http.get(f"{at}/readyz")).status_code == 200
        answer = await http.get(f"{at}/metrics", headers={"accept": OPENMETRICS})
        assert answer.text.endswith("# EOF\n")
        read = {family.name: family for family in text_string_to_metric_families(answer.text)}
        assert samples(read["signoff_refused_inputs"], "_total") == {("late",): 1.0}
        assert samples(read["signoff_store_up"]) == {(): 1.0}
        assert "process_cpu_seconds" in read
        plain = await http.get(f"{at}/metrics")
        assert plain.headers["content-type"].startswith("text/plain")
        assert "signoff_refused_inputs" in {family.name for family in plain_families(plain.text)}
        assert [(await http.get(f"{at}/{path}")).status_code for path in ("", "health", "metrics/")] == [404] * 3
        assert (await http.post(f"{at}/metrics")).status_code == 405
        with pytest.raises(ServerUnavailable, match=rf"port {port} .* is in use.*SIGNOFF_METRICS_PORT"):
            async with MetricsEndpoint(settings).serve(store, "gateway"):
                pass


@pytest.mark.parametrize("runs", [True, False])
async def test_scrape_reports_a_polling_worker(turn_rig: TurnRig, runs: bool) -> None:
    port = free_port()
    watch = WorkerWatch(turn_rig.client, turn_rig.task_queue)
    async with AsyncExitStack() as stack:
        if runs:
            await stack.enter_async_context(turn_rig.running([], []))
            while not await WorkerWatch(turn_rig.client, turn_rig.task_queue).running():
                await asyncio.sleep(0.05)
        await stack.enter_async_context(
            MetricsEndpoint(Settings(metrics_port=port)).serve(turn_rig.store, "gateway", watch)
        )
        http = await stack.enter_async_context(httpx2.AsyncClient(timeout=60))
        answer = await http.get(f"http://127.0.0.1:{port}/metrics", headers={"accept": OPENMETRICS})
        read = {family.name: family for family in text_string_to_metric_families(answer.text)}
        assert samples(read["signoff_worker_up"]) == {(): float(runs)}


def test_missing_metrics_extra_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {"metrics": ("a_module_that_nobody_has",)})
    MetricsEndpoint(Settings())
    with pytest.raises(ConfigError, match=r"^SIGNOFF_METRICS_PORT needs .* pip install 'signoff\[metrics\]'$"):
        MetricsEndpoint(Settings(metrics_port=9464))


def test_document_lists_the_exposed_metrics() -> None:
    table = tables("docs/monitoring.md", "Metrics")
    rows = {row[0].strip("`"): row[1:3] for row in table if row[0].startswith("`signoff_")}
    shown = {
        f"{name}{SUFFIX.get(row.kind, '')}": [
            row.kind.replace("_", " "),
            ", ".join(f"`{label}`" for label in row.labels),
        ]
        for name, row in METRICS.items()
    }
    assert rows == shown
    [depth] = [row for row in table if row[0] == "`signoff_queue_entries`"]
    assert set(names(depth[3])) == QUEUES


def test_every_listed_metric_is_exposed() -> None:
    every = {name: dict.fromkeys([tuple("x" for _ in row.labels)], 1.0) for name, row in METRICS.items()}
    measured = Gauges(
        {name: every[name] for name, row in METRICS.items() if row.kind == "gauge"},
        {name: HistogramCounts(row.buckets) for name, row in METRICS.items() if row.kind == "gauge_histogram"},
    )
    found = families(ProcessCounts(), measured)
    assert {name for name in found if name.startswith("signoff_")} == set(METRICS)
    assert {name: found[name].type for name in METRICS} == {
        name: row.kind.replace("_", "") for name, row in METRICS.items()
    }


def test_monitoring_libraries_are_loaded_only_on_demand() -> None:
    code = "import json, sys; import signoff.worker, signoff.engine.span_process; print(json.dumps([*sys.modules]))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert "signoff.engine.metrics_endpoint" in loaded
    assert loaded & {"prometheus_client", "uvicorn", "opentelemetry.sdk", "signoff.telemetry.span_sender"} == set()
    code = "import json, sys; import signoff.gateway.app; print(json.dumps([*sys.modules]))"
    loaded = set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout))
    assert "signoff.gateway.act_spans" in loaded
    assert loaded & {"prometheus_client", "opentelemetry.sdk", "signoff.telemetry.span_sender"} == set()
