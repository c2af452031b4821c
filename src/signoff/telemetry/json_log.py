"""Writes a log as JSON, one object a line, with the ids of what each line is about; never an argument or a result."""

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
"""The attribute of a record of `logging` that holds further fields."""
RECORD_LOGGER: Final = "signoff.record"
"""The logger of what is written into the record, which is silent unless logs are written as JSON."""
_SDK: Final = ("temporal_workflow", "temporal_activity")
_BOUND: Final[ContextVar[Mapping[str, str]]] = ContextVar("bound_log_fields", default=MappingProxyType({}))
_MESSAGE_CHARS: Final = 2_000


@contextlib.contextmanager
def bind_log_fields(fields: Mapping[str, str]) -> Iterator[None]:
    """Gives `fields` to every line that is logged within the block, and in the tasks that are begun there."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def fields_of_turn(workflow_id: str) -> dict[str, str]:
    """Returns the fields of a turn by its workflow id; none where it names no turn."""
    turn = parse_workflow_id(workflow_id)
    return {} if turn is None else turn._asdict()


def fields_of_call(turn: TurnKey, call: str) -> dict[str, str]:
    """Returns the fields of a call: a request about it is named by both."""
    return {**turn._asdict(), "call": call, "request": ApprovalKey(turn, call).id}


def fields_of_request(approval: str) -> dict[str, str]:
    """Returns the fields of a request by its id; none where it is malformed."""
    named = parse_approval_id(approval)
    return {} if named is None else fields_of_call(named.turn, named.call)


class JsonFormat(logging.Formatter):
    """Writes a record of `logging` as an object on one line.

    Of an error it has the class and where it was raised, and not its words: they may quote what somebody sent.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Writes one record."""
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
    # It quotes the error itself, or what a callback was called with: an argument of somebody's tool among it.
    return message.partition("\n")[0].partition("(")[0]
