"""Writes past requests as lines of CSV or JSON."""

import csv
import io
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from signoff.contracts.responses import PastRequest

ExportForm: TypeAlias = Literal["csv", "jsonl"]
COLUMNS: Final = (
    *("id", "code", "over_at", "state", "tool", "actor", "effect", "requester"),
    *("decided_by", "decided_name", "channel", "reason", "opened_at"),
)
# A spreadsheet runs a cell that begins with one of these.
_FORMULA_SIGNS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def first_line(form: ExportForm) -> str:
    return _csv_line(COLUMNS) if form == "csv" else ""


def past_line(request: PastRequest, form: ExportForm) -> str:
    if form == "jsonl":
        return request.model_dump_json() + "\n"
    fields = request.model_dump(mode="json", include=set(COLUMNS))
    return _csv_line([fields[name] or "" for name in COLUMNS])


def _csv_line(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    # Quotes keep a cell whole where a spreadsheet divides lines at semicolons.
    writer = csv.writer(line, quoting=csv.QUOTE_ALL)
    writer.writerow([f"'{each}" if str(each).startswith(_FORMULA_SIGNS) else each for each in cells])
    return line.getvalue()
