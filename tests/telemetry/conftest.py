"""Spans that stay in memory."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from signoff.telemetry.span_sender import SpanSender


@pytest.fixture
def memory() -> InMemorySpanExporter:
    """Where the spans of a test go."""
    return InMemorySpanExporter()


@pytest.fixture
def spans(memory: InMemorySpanExporter) -> Iterator[SpanSender]:
    """What sends them there, as each ends."""
    sender = SpanSender("test", SimpleSpanProcessor(memory))
    yield sender
    sender.close()
