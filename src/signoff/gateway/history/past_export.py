"""Streams past requests as CSV or JSON lines, for the API and the pages."""

from collections.abc import AsyncGenerator
from typing import Final

from fastapi.responses import StreamingResponse

from signoff.contracts.person import Person
from signoff.gateway.history.past_reader import PastFilter, PastReader
from signoff.texts.past_lines import ExportForm, first_line, past_line

EXPORTED: Final = 100_000
"""Requests in one export."""
_MEDIA_TYPES: Final = {"csv": "text/csv", "jsonl": "application/x-ndjson"}


async def stream_export(
    reader: PastReader, chosen: PastFilter, form: ExportForm, *, own: Person | None = None
) -> StreamingResponse:
    """Raises like `PastReader.find`."""
    # Read before the stream begins, so that a wrong search is answered by a status.
    await reader.find(chosen, own=own, limit=1)

    async def lines() -> AsyncGenerator[str, None]:
        yield first_line(form)
        async for each in reader.every(chosen, own=own, limit=EXPORTED):
            yield past_line(each, form)

    headers = {"content-disposition": f'attachment; filename="decisions.{form}"'}
    return StreamingResponse(lines(), media_type=_MEDIA_TYPES[form], headers=headers)
