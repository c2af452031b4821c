import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest
from call_rig import CallRig, call_rig
from mcp_rig import MODERN
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Client

from signoff.store.store import Store
from signoff.telemetry.span_sender import SpanSender

BY_HEADER, BY_MESSAGE = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"


def parent(trace: str) -> str:
    return f"00-{trace}-00f067aa0ba902b7-01"


@pytest.fixture
async def traced(client: Client, store: Store, spans: SpanSender) -> AsyncIterator[CallRig]:
    async with call_rig(client, store, f"call-spans-{uuid.uuid4().hex[:12]}", spans=spans) as rig:
        yield rig


async def finished(memory: InMemorySpanExporter, number: int) -> Sequence[ReadableSpan]:
    """Wait for `number` spans: a worker ends its own after its answer."""
    while len(memory.get_finished_spans()) < number:
        await asyncio.sleep(0.02)
    return memory.get_finished_spans()


async def test_call_starts_in_the_trace_of_its_caller(traced: CallRig, memory: InMemorySpanExporter) -> None:
    body = {"agent": "coder", "tool": "refund", "args": {"order": "A7", "euro": 20}, "use": True}
    headers = {"traceparent": parent(BY_HEADER), "idempotency-key": "traced"}
    call = (await traced.http.post("/v1/calls", json=body, headers=headers)).json()["id"]
    assert (await traced.report(call)).status_code == 200
    found = {each.name: each for each in await finished(memory, 4)}
    assert sorted(found) == ["execute_tool refund", "invoke_agent coder", "signoff.gate", "signoff.start_turn"]
    assert f"{found['signoff.start_turn'].context.trace_id:032x}" == BY_HEADER
    [link] = found["signoff.start_turn"].links
    assert link.context.span_id == found["invoke_agent coder"].context.span_id
    tool = dict(found["execute_tool refund"].attributes or {})
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "refund")
    assert (found["invoke_agent coder"].attributes or {})["signoff.segment.ended"] == "ended"


async def test_waiting_call_has_two_agent_spans(traced: CallRig, memory: InMemorySpanExporter) -> None:
    call = (await traced.propose(euro=200)).json()["id"]
    assert (await traced.decide(call)).json()["status"] == "accepted"
    assert (await traced.use(call)).status_code == 200
    await traced.propose(euro=2_000)
    # From the first call: its start, its gate, two segments, the answer and its tool. From the second: start, gate,
    # segment.
    spans = await finished(memory, 9)
    agents = [dict(each.attributes or {}) for each in spans if each.name == "invoke_agent coder"]
    assert [each["signoff.segment.ended"] for each in agents] == ["waits", "ended", "ended"]


async def test_mcp_message_names_its_trace(traced: CallRig, memory: InMemorySpanExporter) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": parent(BY_MESSAGE),
    }
    params = {"name": "pay", "arguments": {"amount": 20, "to": "x"}, "_meta": meta}
    answer = await traced.http.post(
        "/mcp/coder",
        content=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}),
        headers={
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "traceparent": parent(BY_HEADER),
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": "pay",
        },
    )
    assert answer.json()["result"]["isError"] is False, answer.text
    found = {each.name: each for each in await finished(memory, 4)}
    assert sorted(found) == ["execute_tool pay", "invoke_agent coder", "signoff.gate", "signoff.start_turn"]
    assert f"{found['signoff.start_turn'].context.trace_id:032x}" == BY_MESSAGE
    [link] = found["signoff.start_turn"].links
    assert link.context.span_id == found["invoke_agent coder"].context.span_id
