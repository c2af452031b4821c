"""Sends spans with OpenTelemetry's SDK to the `OTEL_*` target. Imported only for sending spans."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Final

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from signoff.contracts.names import VERSION
from signoff.telemetry.segments import SpanKey, TurnSegment

Attributes = Mapping[str, str | int | float | bool]
_NEXT: Final[ContextVar[SpanKey | None]] = ContextVar("next_span", default=None)


class _ComputedIds(RandomIdGenerator):
    """Gives a segment's root its computed ids, and all other spans random ones."""

    def generate_trace_id(self) -> int:
        key = _NEXT.get()
        return super().generate_trace_id() if key is None else key.trace

    def generate_span_id(self) -> int:
        key = _NEXT.get()
        return super().generate_span_id() if key is None else key.span


class SpanSender:
    """Writes the spans of turns."""

    def __init__(self, process: str, processor: SpanProcessor | None = None) -> None:
        named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": f"signoff-{process}"}
        resource = Resource.create({**named, "service.version": VERSION})
        self._provider = TracerProvider(resource=resource, id_generator=_ComputedIds(), shutdown_on_exit=False)
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("signoff", VERSION)

    def close(self) -> None:
        """Send the remaining spans, within the time limit of `OTEL_*`."""
        self._provider.shutdown()

    def write_segment(
        self, segment: TurnSegment, name: str, attributes: Attributes, begun: datetime, ended: datetime, error: str = ""
    ) -> None:
        """Link the span to the segment before the wait."""
        links = [] if segment.before is None else [Link(self._context(segment.before))]
        token = _NEXT.set(segment.key)
        try:
            span = self._tracer.start_span(
                name, context.Context(), SpanKind.INTERNAL, attributes, links, start_time=_nanoseconds(begun)
            )
        finally:
            _NEXT.reset(token)
        if error:
            self.mark_failed(span, error)
        span.end(_nanoseconds(max(begun, ended)))

    @contextlib.contextmanager
    def child(self, segment: TurnSegment, name: str, attributes: Attributes, *, client: bool = False) -> Iterator[Span]:
        """Spans that start in the block are its children."""
        parent = trace.set_span_in_context(NonRecordingSpan(self._context(segment.key)), context.Context())
        kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
        with self._span(name, parent, attributes, (), kind) as span:
            yield span

    @contextlib.contextmanager
    def act(
        self, name: str, attributes: Attributes, about: Sequence[SpanKey], carrier: Mapping[str, str]
    ) -> Iterator[Span]:
        """Link a person's action to segments of the turn.

        Its span joins the trace of `carrier`, headers with a `traceparent`. Without one it starts its own.
        """
        parent = TraceContextTextMapPropagator().extract(carrier, context.Context())
        links = [Link(self._context(each)) for each in about]
        with self._span(name, parent, attributes, links, SpanKind.SERVER) as span:
            yield span

    def mark_failed(self, span: Span, kind: str) -> None:
        """`kind` is the class or code of the error."""
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR))

    @contextlib.contextmanager
    def _span(
        self, name: str, parent: context.Context, attributes: Attributes, links: Sequence[Link], kind: SpanKind
    ) -> Iterator[Span]:
        span = self._tracer.start_span(name, parent, kind, attributes, links)
        try:
            # Export only an error's class: its message may quote arguments.
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:
            self.mark_failed(span, type(error).__name__)
            raise
        finally:
            span.end()

    def _context(self, key: SpanKey) -> SpanContext:
        sampled = self._provider.sampler.should_sample(context.Context(), key.trace, "").decision
        flags = TraceFlags(TraceFlags.SAMPLED if sampled is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return SpanContext(key.trace, key.span, is_remote=True, trace_flags=flags)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
