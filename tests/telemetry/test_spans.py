import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from gateway_rig import PASSWORD, GatewayRig, gateway_rig
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tables import table
from temporalio.client import Client

from signoff.contracts.errors import ConfigError
from signoff.contracts.ids import TurnKey
from signoff.engine.span_process import open_spans
from signoff.registry import extras
from signoff.settings import Settings
from signoff.store.store import Store
from signoff.telemetry.segments import TurnWait, segment_after, segment_at
from signoff.telemetry.span_sender import SpanSender

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{CALLER}-00f067aa0ba902b7-01"
START = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture
async def rig(client: Client, store: Store, spans: SpanSender) -> AsyncIterator[GatewayRig]:
    async with gateway_rig(client, store, f"spans-{uuid.uuid4().hex[:12]}", spans=spans) as found:
        yield found


def named(memory: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return sorted((each for each in memory.get_finished_spans() if each.name == name), key=_begun)


def _begun(span: ReadableSpan) -> int:
    return span.start_time or 0


def _children(memory: InMemorySpanExporter, root: ReadableSpan) -> list[str]:
    found = [
        each for each in memory.get_finished_spans() if each.parent and each.parent.span_id == root.context.span_id
    ]
    assert {each.context.trace_id for each in found} <= {root.context.trace_id}
    return [each.name for each in sorted(found, key=_begun)]


def _links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def _place(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


async def test_turn_with_a_request_has_two_spans_and_a_link(rig: GatewayRig, memory: InMemorySpanExporter) -> None:
    body = {"text": "login", "actor": "desk"}
    started = (await rig.http.post("/v1/turns", json=body, headers={"traceparent": TRACEPARENT})).json()
    key = TurnKey(started["tenant"], started["session"], started["turn"])
    view = await rig.turns.waiting(key)
    [request] = [call.approval for call in view.calls if call.approval is not None]
    [first] = named(memory, "invoke_agent desk")
    asked = datetime.now(UTC).timestamp() * 1e9
    await rig.decide(request.id, verdict="approved", revision=1, **{"as": "approver"})
    await rig.turns.signoff.result(key)
    _, second = named(memory, "invoke_agent desk")
    assert _children(memory, first) == ["chat scripted"]
    assert _children(memory, second) == ["execute_tool login", "chat scripted"]
    assert (first.parent, second.parent) == (None, None)
    assert first.context.trace_id != second.context.trace_id
    assert _links(second) == [_place(first)]
    assert [each.name for each in memory.get_finished_spans() if _begun(each) < asked < (each.end_time or 0)] == []
    [start] = named(memory, "signoff.start_turn")
    [decide] = named(memory, "signoff.decide")
    assert f"{start.context.trace_id:032x}" == CALLER
    assert (_links(start), _links(decide)) == ([_place(first)], [_place(first), _place(second)])


async def test_span_attributes_are_ids_and_names_by_the_conventions(
    rig: GatewayRig, memory: InMemorySpanExporter
) -> None:
    approval = await rig.asked("login")
    key = TurnKey(*approval.split(".")[:3])
    await rig.decide(approval, verdict="approved", revision=1, reason="agreed by phone", **{"as": "approver"})
    await rig.turns.signoff.result(key)
    spans = memory.get_finished_spans()
    text = "".join(each.to_json() for each in spans)
    assert [word for word in (PASSWORD, "example.com", "agreed by phone", "You said") if word in text] == []
    assert all(not each.events for each in spans)
    [tool] = named(memory, "execute_tool login")
    assert dict(tool.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "desk",
        "gen_ai.conversation.id": key.session,
        "gen_ai.tool.name": "login",
        "gen_ai.tool.call.id": "c1.1",
        "signoff.tenant": "main",
        "signoff.turn": key.turn,
        "signoff.attempt": 1,
        "signoff.permit": "approved",
        "signoff.approval.request": approval,
        "signoff.outcome": "ok",
    }
    model = dict(named(memory, "chat scripted")[0].attributes or {})
    assert (model["gen_ai.operation.name"], model["gen_ai.request.model"]) == ("chat", "scripted")
    segments = [dict(each.attributes or {}) for each in named(memory, "invoke_agent desk")]
    assert [each["signoff.segment.ended"] for each in segments] == ["waits", "ended"]
    assert [each.get("signoff.approval.request") for each in segments] == [None, approval]
    decide = dict(named(memory, "signoff.decide")[0].attributes or {})
    assert (decide["signoff.approval.verdict"], decide["signoff.approval.request"]) == ("approved", approval)


async def test_failed_span_has_its_error_code(rig: GatewayRig, memory: InMemorySpanExporter) -> None:
    approval = await rig.asked("fail")
    await rig.decide(approval, verdict="approved", revision=1, **{"as": "approver"})
    await rig.turns.signoff.result(TurnKey(*approval.split(".")[:3]))
    [tool] = named(memory, "execute_tool fail")
    assert (tool.attributes or {})["error.type"] == "execution_failed"
    assert not tool.status.is_ok
    assert "the bank is closed" not in tool.to_json()


async def test_no_span_is_made_if_spans_are_off(client: Client, store: Store, memory: InMemorySpanExporter) -> None:
    async with gateway_rig(client, store, f"spans-{uuid.uuid4().hex[:12]}") as rig:
        await rig.asked("pay")
        assert rig.deps.spans is None
        assert rig.turns.deps.spans is None
    assert memory.get_finished_spans() == ()


def _wait(number: int, asked: int, over: int | None) -> TurnWait:
    ended = None if over is None else START + timedelta(seconds=over)
    return TurnWait(f"main.s.t.c{number}.1", 1, START + timedelta(seconds=asked), ended)


WAITS = (_wait(1, 5, 100), _wait(2, 110, 300), _wait(3, 111, 200), _wait(4, 310, None))


@table(
    ("second", "cause", "before"),
    (0, None, None),
    (99, None, None),
    (100, 0, None),
    (199, 0, None),
    (200, 2, 0),
    (300, 1, 0),
    (10_000, 1, 0),
)
def test_moment_belongs_to_the_latest_segment(second: int, cause: int | None, before: int | None) -> None:
    found = segment_at("turn/main/s/t", "n", WAITS, START + timedelta(seconds=second))
    assert found.cause == (None if cause is None else WAITS[cause])
    keys = [segment_after("turn/main/s/t", "n", each.request, each.revision) for each in WAITS]
    first = segment_at("turn/main/s/t", "n", (), START).key
    assert found.key == (first if cause is None else keys[cause])
    assert found.before == (None if cause is None else first if before is None else keys[before])


def test_spans_of_different_turns_have_different_ids() -> None:
    keys = [
        segment_at(workflow, nonce, waits, START + timedelta(days=1)).key
        for workflow in ("turn/main/s/t", "turn/acme/s/t")
        for nonce in ("n", "m")
        for waits in ((), WAITS[:1])
    ]
    assert len({each.trace for each in keys}) == len({each.span for each in keys}) == 8


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        taken: list[Any] = self.server.taken  # type: ignore[attr-defined]
        taken.append((self.path, self.rfile.read(int(self.headers["content-length"])), dict(self.headers)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture
def collector() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    server.taken = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_spans_are_sent_to_opentelemetrys_configured_endpoint(
    collector: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    async with open_spans(Settings(otel=True), "gateway") as spans:
        assert spans is not None
        segment = segment_at("turn/main/s/t", "n", WAITS, START + timedelta(seconds=250))
        spans.write_segment(segment, "invoke_agent desk", {"signoff.turn": "t"}, START, START + timedelta(seconds=1))
    [(path, body, _)] = collector.taken  # type: ignore[attr-defined]
    assert path == "/v1/traces"
    [resource] = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "signoff-gateway"
    [span] = resource.scope_spans[0].spans
    assert (span.trace_id, span.span_id) == (segment.key.trace.to_bytes(16), segment.key.span.to_bytes(8))
    assert segment.before is not None
    assert span.links[0].span_id == segment.before.span.to_bytes(8)
    assert span.end_time_unix_nano - span.start_time_unix_nano == 1_000_000_000


async def test_missing_otel_extra_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "EXTRAS", {"otel": ("a_module_that_nobody_has",)})
    async with open_spans(Settings(), "worker") as none:
        assert none is None
    with pytest.raises(ConfigError, match=r"^SIGNOFF_OTEL needs .* pip install 'signoff\[otel\]'$"):
        async with open_spans(Settings(otel=True), "worker"):
            pass
