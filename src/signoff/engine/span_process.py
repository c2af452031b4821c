"""Opens the sender of one process's spans, if the installation wants spans."""

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
    """Yield `None` if spans are off. Sends the rest at the end of the block.

    Raises `ConfigError` if the extra is not installed.
    """
    if not settings.otel:
        yield None
        return
    require_extra("otel", "SIGNOFF_OTEL")
    # Load this module only for tracing.
    from signoff.telemetry.span_sender import SpanSender  # noqa: PLC0415

    spans = SpanSender(process)
    try:
        yield spans
    finally:
        await asyncio.to_thread(spans.close)
