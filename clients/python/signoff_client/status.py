"""Reads from a gateway's answers how far a call has come; what is no such answer lets nothing run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from signoff_client.messages import Failure, Reply, to_text

State = Literal["waiting", "permitted", "used", "denied", "ended", "refused", "unreachable"]
"""How far a call has come for this program. `permitted`: its permit is in this program's hands. `refused` and
`unreachable`: the gateway took no such call, or gave no answer that counts."""

_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,600}")
_STATES: Final[Mapping[Any, State]] = {
    "waiting": "waiting",
    "running": "waiting",
    "permitted": "permitted",
    "used": "used",
    "denied": "denied",
    "ended": "ended",
}
_WORDS: Final = ("tool", "code", "page", "source", "reason", "by", "decided_by", "edited_by", "note")
_STRANGER: Final = "what answers there is no gateway of this version"
_SOURCES: Final = {
    "human": "it was denied",
    "policy": "a rule denies it",
    "timeout": "nobody answered in time",
    "cancelled": "it was withdrawn",
    "repeat": "it was denied before",
    "lapsed": "its permit was not used in time",
    "frozen": "everything is stopped at present",
    "stale": "what was approved is not what would run",
}


@dataclass(frozen=True)
class CallStatus:
    """Says how far a call has come, as the gateway tells it."""

    state: State
    id: str = ""
    tool: str = ""
    code: str = ""
    """While it waits, the code that people read; once it has ended `ok`, `execution_failed` or `in_doubt`."""
    page: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    """Of a permit: the same for the same call, for a backend that knows idempotency keys."""
    source: str = ""
    reason: str = ""
    by: str = ""
    decided_by: str = ""
    edited_by: str = ""
    note: str = ""
    result: Any = None


def is_call_id(text: str) -> bool:
    """Returns whether a gateway may have named a call so."""
    return _ID.fullmatch(text) is not None


def read_status(reply: Reply | Failure, known: str = "") -> CallStatus:
    """Reads how far a call has come; what is no such answer lets nothing run. `known` is the call's id, once known."""
    if isinstance(reply, Failure):
        return CallStatus("unreachable", known, reason=reply.reason)
    if reply.is_temporary:
        return CallStatus("unreachable", known, reason=reply.message)
    if 400 <= reply.status < 500:
        return CallStatus("refused", known, reason=reply.message)
    body = reply.body or {}
    call, state = body.get("id"), body.get("state")
    is_call = reply.status in (200, 201) and isinstance(call, str) and known in ("", call)
    if not is_call or not is_call_id(str(call)) or not isinstance(state, str) or state not in _STATES:
        return CallStatus("unreachable", known, reason=_STRANGER)
    args = body.get("args") if state == "permitted" else {}
    if not isinstance(args, dict):
        return CallStatus("unreachable", known, reason=_STRANGER)
    words = {name: body[name] for name in _WORDS if isinstance(body.get(name), str)}
    return CallStatus(_STATES[state], str(call), args=args, result=body.get("result"), **words)


def read_permit(reply: Reply | Failure, status: CallStatus) -> CallStatus:
    """Reads what came of the use of a permit: the arguments to run the call with, or why it must not be run."""
    if isinstance(reply, Reply) and reply.status == 409 and reply.body is not None:
        state: State = "used" if reply.code == "used" else "waiting" if reply.code == "waiting" else "denied"
        return replace(status, state=state, source=reply.code, reason=reply.message)
    if isinstance(reply, Failure) or reply.status != 200:
        found = read_status(reply, status.id)
        return found if found.state in ("refused", "unreachable") else replace(found, state="unreachable")
    args, key = (reply.body or {}).get("args"), (reply.body or {}).get("key")
    if not isinstance(args, dict) or not isinstance(key, str):
        return CallStatus("unreachable", status.id, reason=_STRANGER)
    note = (reply.body or {}).get("note")
    return replace(status, state="permitted", args=args, key=key, note=note if isinstance(note, str) else "")


def explain(status: CallStatus) -> str:
    """Says, for the model, why a call was not run, or what came of it where it was not run here."""
    if status.state == "waiting":
        code = f" ({status.code})" if status.code else ""
        return f"Not run: it waits for a person's approval{code}."
    if status.state == "denied":
        by = f" by {status.by}" if status.by else ""
        why = f": {status.reason}" if status.reason else ""
        return f"Not run: {_SOURCES.get(status.source, 'it must not run')}{by}{why}"
    if status.state == "used":
        return "Not run: its permit was used before, and what became of it is not known here."
    if status.state == "refused":
        return f"Not run: Signoff does not take it: {status.reason}"
    if status.state == "unreachable":
        return f"Not run: Signoff gave no answer ({status.reason})."
    if status.state == "permitted":
        return "It may run, and has not run yet."
    return describe_outcome(status.code, status.result)


def describe_outcome(code: str, result: Any) -> str:
    """Says, for the model, what became of a call."""
    words = to_text(result)
    if code == "ok":
        return words
    return f"It failed: {words}" if code == "execution_failed" else f"It may have happened or not: {words}"
