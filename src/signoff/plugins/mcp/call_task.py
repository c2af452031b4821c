"""Makes tasks of MCP's tasks extension of calls: their states, and what came of them. Pure."""

from datetime import datetime
from typing import Any, Final

from signoff.calls import MOVING, CallTimes
from signoff.contracts.responses import CallAnswer
from signoff.plugins.mcp.call_result import result_of

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension's name."""
POLL_MILLISECONDS: Final = 5_000
"""How often a client should look again."""


def created_task(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    """Returns the result of a call that became a task."""
    return {"resultType": "task", **_base(answer, times)}


def detailed_task(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    """Returns a task as `tasks/get` answers it: one that is over with its result."""
    found = {"resultType": "complete", **_base(answer, times)}
    return {**found, "result": result_of(answer)} if found["status"] == "completed" else found


def _base(answer: CallAnswer, times: CallTimes) -> dict[str, Any]:
    found: dict[str, Any] = {
        "taskId": answer.id,
        "status": _status(answer),
        "createdAt": _text(times.begun_at),
        "lastUpdatedAt": _text(times.changed_at),
        "ttlMs": None,
        "pollIntervalMs": POLL_MILLISECONDS,
    }
    words = _status_words(answer)
    return {**found, "statusMessage": words} if words else found


def _status(answer: CallAnswer) -> str:
    # Never `input_required`: the client's user is not who decides.
    if answer.state in (*MOVING, "permitted"):
        return "working"
    return "cancelled" if (answer.state, answer.source) == ("denied", "cancelled") else "completed"


def _status_words(answer: CallAnswer) -> str:
    if answer.state == "waiting" and answer.code:
        return f"{answer.code} waits for approval"
    return answer.reason if answer.state == "denied" else ""


def _text(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
