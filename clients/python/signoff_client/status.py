"""Parses a gateway's answers into the state of a call. Without a valid answer, nothing runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from signoff_client.messages import Failure, Reply, to_text

State = Literal["waiting", "permitted", "used", "denied", "ended", "refused", "unreachable"]
"""The state of a call for this program.

`permitted`: this program holds its permit. `refused` and `unreachable`: the gateway did not accept the call, or gave no
valid answer.
"""

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
_STRANGER: Final = "the server at this address is not a gateway of this version"
_SOURCES: Final = {
    "human": "it was denied",
    "answered": "it was answered instead",
    "policy": "a rule denies it",
    "timeout": "nobody answered in time",
    "cancelled": "it was withdrawn",
    "repeat": "it was denied before",
    "lapsed": "its permit was not used in time",
    "frozen": "the tenant is frozen",
    "stale": "the approval does not match the call",
}


@dataclass(frozen=True)
class CallStatus:
    """The state of a call, as the gateway reports it."""

    state: State
    id: str = ""
    tool: str = ""
    code: str = ""
    """While it waits, the request's code; at the end `ok`, `execution_failed` or `in_doubt`."""
    page: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    """With a permit: the same for every attempt of one call, for a backend with idempotency keys."""
    source: str = ""
    reason: str = ""
    by: str = ""
    decided_by: str = ""
    edited_by: str = ""
    note: str = ""
    result: Any = None


def is_call_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def read_status(reply: Reply | Failure, known: str = "") -> CallStatus:
    """Parse the state of a call. An invalid answer lets nothing run."""
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
    """Return the arguments for the run, or the reason against it."""
    if isinstance(reply, Reply) and reply.status == 409 and reply.body is not None:
        state: State = "used" if reply.code == "used" else "waiting" if reply.code == "waiting" else "denied"
        return replace(status, state=state, source=reply.code, reason=reply.message)
    if isinstance(reply, Failure) or reply.status != 200:
        refusal = read_status(reply, status.id)
        return refusal if refusal.state in ("refused", "unreachable") else replace(refusal, state="unreachable")
    args, key = (reply.body or {}).get("args"), (reply.body or {}).get("key")
    if not isinstance(args, dict) or not isinstance(key, str):
        return CallStatus("unreachable", status.id, reason=_STRANGER)
    note = (reply.body or {}).get("note")
    return replace(status, state="permitted", args=args, key=key, note=note if isinstance(note, str) else "")


def explain(status: CallStatus) -> str:
    if status.state == "waiting":
        code = f" ({status.code})" if status.code else ""
        return f"Not run: it waits for a person's approval{code}."
    if status.state == "denied":
        by = f" by {status.by}" if status.by else ""
        why = f": {status.reason}" if status.reason else ""
        return f"Not run: {_SOURCES.get(status.source, 'it must not run')}{by}{why}"
    if status.state == "used":
        return "Not run: its permit was used before, and its outcome is unknown here."
    if status.state == "refused":
        return f"Not run: Signoff does not take it: {status.reason}"
    if status.state == "unreachable":
        return f"Not run: Signoff gave no answer ({status.reason})."
    if status.state == "permitted":
        return "It may run, and has not run yet."
    return describe_outcome(status.code, status.result)


def describe_outcome(code: str, result: Any) -> str:
    words = to_text(result)
    if code == "ok":
        return words
    return f"It failed: {words}" if code == "execution_failed" else f"It may have happened or not: {words}"
