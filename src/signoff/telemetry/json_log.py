"""Writes a log as JSON, one object a line, with the ids of turn and call, never an argument or a result."""

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from signoff.contracts.ids import ApprovalKey, TurnKey, parse_approval_id, parse_workflow_id
from signoff.telemetry.stack_trace import trace_without_words

FACTS: Final = "signoff_facts"
"""The attribute of a log record with additional fields."""
RECORD_LOGGER: Final = "signoff.record"
"""The logger of audit entries, silent unless logs are JSON."""
_SDK: Final = ("temporal_workflow", "temporal_activity")
_BOUND: Final[ContextVar[Mapping[str, str]]] = ContextVar("bound_log_fields", default=MappingProxyType({}))
_MESSAGE_CHARS: Final = 2_000


@contextlib.contextmanager
def bind_log_fields(fields: Mapping[str, str]) -> Iterator[None]:
    """Add `fields` to every line logged within the block, and in tasks started there."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def fields_of_turn(workflow_id: str) -> dict[str, str]:
    """Return no fields for an id of another kind."""
    turn = parse_workflow_id(workflow_id)
    return {} if turn is None else turn._asdict()


def fields_of_call(turn: TurnKey, call: str) -> dict[str, str]:
    """They also identify the call's request."""
    return {**turn._asdict(), "call": call, "request": ApprovalKey(turn, call).id}


def fields_of_request(approval: str) -> dict[str, str]:
    """Return no fields for a malformed id."""
    named = parse_approval_id(approval)
    return {} if named is None else fields_of_call(named.turn, named.call)


class JsonFormat(logging.Formatter):
    """Writes a log record as an object on one line.

    An error's message is left out, since it may quote input.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record)[:_MESSAGE_CHARS],
        }
        for name in _SDK:
            details = getattr(record, name, None)
            line |= fields_of_turn(str(details.get("workflow_id", ""))) if isinstance(details, Mapping) else {}
        line |= {**_BOUND.get(), **getattr(record, FACTS, {})}
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = trace_without_words(record.exc_info[1])
        return json.dumps(line, ensure_ascii=True)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.name != "asyncio":
        return message
    # It quotes the error itself, or a callback's arguments, which may include a tool's.
    return message.partition("\n")[0].partition("(")[0]
