"""Keeps signals whose payloads cannot be decoded from filling the log with tracebacks.

Anybody with a Temporal credential can send such a signal. The SDK drops it, and logs a traceback for each.
"""

import logging
from typing import Final

from signoff.contracts.names import ACTOR_TURN, HANDLER_RUN, SESSION

_LOGGER: Final = "temporalio.worker._workflow_instance"
_DROPPED: Final = "Failed deserializing signal input"
_OURS: Final = (ACTOR_TURN, SESSION, HANDLER_RUN)


class _OneLine(logging.Filter):
    """Leaves one line, a warning, of each dropped signal of our workflows."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = getattr(record, "temporal_workflow", None)
        if isinstance(about, dict) and about.get("workflow_type") in _OURS and str(record.msg).startswith(_DROPPED):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.exc_info = record.exc_text = None
        return True


_FILTER: Final = _OneLine()


def quiet_junk_signals() -> None:
    """Logs each signal that cannot be decoded on one line. Calling it again changes nothing."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)
