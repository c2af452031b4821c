"""Makes results of MCP's `tools/call`, and tasks of its tasks extension, of how far a call has come. Pure."""

import json
from datetime import datetime
from typing import Any, Final

from signoff.calls import MOVING, CallTimes
from signoff.contracts.responses import CallAnswer

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension's name."""
POLL_MILLISECONDS: Final = 5_000
"""How often a client should look again."""


def result_of(answer: CallAnswer) -> dict[str, Any]:
    """Returns the result for a call as it stands: its own, why it was not run, or how it is asked for later."""
    match answer.state:
        case "ended" if answer.code == "ok":
            return _outcome(answer)
        case "ended":
            return _error(_join(answer.note, _text(answer.result)))
        case "denied":
            return _error(_denied_words(answer))
    return _error(waiting_words(answer))


def waiting_words(answer: CallAnswer) -> str:
    """Says that a call is not settled, and how its result is got."""
    state = f"Waiting for approval, {answer.code}." if answer.code else "Not finished yet."
    return f"{state} Call the same tool with the same arguments later to get its result."


def _outcome(answer: CallAnswer) -> dict[str, Any]:
    # Beside the result, not in it: what people changed must not read as something that the tool said.
    texts = [*([answer.note] if answer.note else []), _text(answer.result)]
    found: dict[str, Any] = {"content": [{"type": "text", "text": text} for text in texts], "isError": False}
    return {**found, "structuredContent": answer.result} if isinstance(answer.result, dict) else found


def _denied_words(answer: CallAnswer) -> str:
    by = f" by {answer.by}" if answer.by else ""
    return f"Denied{by} ({answer.source}): {answer.reason}" if answer.reason else f"Denied{by} ({answer.source})."


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def _join(note: str, text: str) -> str:
    return f"{note}\n{text}" if note else text


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
        "createdAt": _stamp(times.begun_at),
        "lastUpdatedAt": _stamp(times.changed_at),
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


def _stamp(at: datetime | None) -> str:
    return "" if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
