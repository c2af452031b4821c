"""Keeps signals with invalid payloads from filling the log with tracebacks.

Anyone with Temporal credentials can send such a signal. The SDK drops it, and logs a traceback for each.
"""

import logging
from typing import Final

from signoff.contracts.names import ACTOR_TURN, HANDLER_RUN, SESSION

_LOGGER: Final = "temporalio.worker._workflow_instance"
_DROPPED: Final = "Failed deserializing signal input"
_OURS: Final = (ACTOR_TURN, SESSION, HANDLER_RUN)


class _OneLine(logging.Filter):
    """Reduces each dropped signal of Signoff's workflows to one warning line."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = getattr(record, "temporal_workflow", None)
        if isinstance(about, dict) and about.get("workflow_type") in _OURS and str(record.msg).startswith(_DROPPED):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.exc_info = record.exc_text = None
        return True


_FILTER: Final = _OneLine()


def quiet_junk_signals() -> None:
    """A repeated call has no effect."""
    logging.getLogger(_LOGGER).addFilter(_FILTER)
