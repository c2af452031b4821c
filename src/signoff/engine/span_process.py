"""Opens what sends the spans of one process, where the installation wants spans."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from signoff.registry.extras import require_extra
from signoff.settings import Settings

if TYPE_CHECKING:
    from signoff.telemetry.span_sender import SpanSender


@asynccontextmanager
async def open_spans(settings: Settings, process: str) -> AsyncIterator["SpanSender | None"]:
    """Opens the sender of spans, and sends what is left at the end of the block; None where spans are off.

    Raises `ConfigError` where the extra is not installed.
    """
    if not settings.otel:
        yield None
        return
    require_extra("otel", "SIGNOFF_OTEL")
    # What only those need who trace is not loaded by the others.
    from signoff.telemetry.span_sender import SpanSender  # noqa: PLC0415

    spans = SpanSender(process)
    try:
        yield spans
    finally:
        await asyncio.to_thread(spans.close)
