from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from signoff.telemetry.span_sender import SpanSender


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> Iterator[SpanSender]:
    sender = SpanSender("test", SimpleSpanProcessor(memory))
    yield sender
    sender.close()
