"""Makes tasks from turns. Pure."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome
from signoff.contracts.ids import show_code
from signoff.contracts.message import RESERVED_PART_TYPES
from signoff.contracts.turn import TurnView
from signoff.plugins.a2a.agent_card import PART, TOOLS

SUBMITTED: Final = "TASK_STATE_SUBMITTED"
WORKING: Final = "TASK_STATE_WORKING"
AUTH_REQUIRED: Final = "TASK_STATE_AUTH_REQUIRED"
COMPLETED: Final = "TASK_STATE_COMPLETED"
FAILED: Final = "TASK_STATE_FAILED"
CANCELED: Final = "TASK_STATE_CANCELED"
REJECTED: Final = "TASK_STATE_REJECTED"
TERMINAL: Final = frozenset((COMPLETED, FAILED, CANCELED, REJECTED))
INTERRUPTED: Final = frozenset((AUTH_REQUIRED,))
STATES: Final = {
    "running": WORKING,
    "suspended": AUTH_REQUIRED,
    "complete": COMPLETED,
    "clarifying": COMPLETED,
    # The turn is over, but its work continues, in a turn of the same message or outside.
    "awaiting": WORKING,
    "delegated": WORKING,
    "passed": WORKING,
    "error": FAILED,
    "cancelled": CANCELED,
    # The server's states for turns that were ended from outside.
    "terminated": FAILED,
    "failed": FAILED,
    "timed_out": FAILED,
}
"""The state of a task by its turn's state. `REJECTED` also depends on its calls."""
DENIAL_LIMIT: Final = "denial_limit"


@dataclass(frozen=True)
class PeerTask:
    """A task as a peer sees it. `parts` are the answer's parts by type."""

    id: str
    context: str
    state: str = SUBMITTED
    at: datetime | None = None
    words: str = ""
    facts: tuple[dict[str, Any], ...] = ()
    parts: tuple[tuple[str, Any], ...] = ()
    turn_state: str = ""
    calls: tuple[dict[str, Any], ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the task can no longer change."""
        return self.state in TERMINAL

    def as_json(
        self, consumes: Collection[str], withheld: Collection[str], *, artifacts: bool = True
    ) -> dict[str, Any]:
        found: dict[str, Any] = {"id": self.id, "contextId": self.context, "status": self.status()}
        artifact = self.artifact(consumes, withheld) if artifacts else None
        if artifact is not None:
            found["artifacts"] = [artifact]
        if self.turn_state:
            found["metadata"] = {TOOLS: {"state": self.turn_state, "calls": list(self.calls)}}
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {"state": self.state}
        if self.words:
            found["message"] = {
                "messageId": f"{self.id}.{self.state.lower()}",
                "contextId": self.context,
                "taskId": self.id,
                "role": "ROLE_AGENT",
                "parts": [{"text": self.words}, *({"data": each} for each in self.facts)],
            }
        if self.at is not None:
            found["timestamp"] = time_text(self.at)
        return found

    def artifact(self, consumes: Collection[str], withheld: Collection[str]) -> dict[str, Any] | None:
        """Return `None` if there is no answer for this peer."""
        # An answer may consist of parts only; drop its empty text.
        told = [(kind, value) for kind, value in self.parts if value != ""]
        kept = [(kind, value) for kind, value in told if kind not in withheld or kind in consumes]
        if not kept:
            return None
        taken = sorted({PART + kind for kind, _ in kept if kind in withheld})
        found: dict[str, Any] = {"artifactId": "answer", "name": "answer", "parts": [_part(*each) for each in kept]}
        return {**found, "extensions": taken} if taken else found


def task_of(
    base: PeerTask, view: TurnView, exposed: Collection[str], public_url: str, at: datetime | None = None
) -> PeerTask:
    """`at` is the turn's end. `exposed` are the tools that peers may know."""
    waiting = [call.approval for call in view.calls if call.approval is not None and call.approval.state == "pending"]
    outcomes = [each for each in (() if view.result is None else view.result.calls) if each.tool in exposed]
    state = STATES.get(view.state, WORKING)
    if view.state == "suspended":
        asked = [each.opened_at for each in waiting if each.opened_at is not None]
        words, facts = _waiting_words(waiting), tuple(_waiting_facts(each, public_url) for each in waiting)
        return replace(base, state=state, words=words, facts=facts, at=max(asked, default=view.started_at))
    error = None if view.result is None else view.result.error
    words = "" if error is None else error.message
    denied = [each for each in outcomes if each.denied is not None]
    if (error is not None and error.code == DENIAL_LIMIT) or (view.state == "complete" and _none_ran(denied, outcomes)):
        # An approver, a timeout or a rule denied the request.
        state, words = REJECTED, words or _denied_words(denied)
    ended = view.result is not None
    return replace(
        base,
        state=state,
        words=words,
        at=at or view.started_at,
        turn_state=view.state if ended else "",
        calls=tuple(map(_call, outcomes)) if ended else (),
    )


def time_text(at: datetime) -> str:
    """Use UTC with milliseconds, as the protocol does."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_told(kind: str) -> bool:
    return kind not in RESERVED_PART_TYPES


def _none_ran(denied: Sequence[CallOutcome], outcomes: Iterable[CallOutcome]) -> bool:
    return bool(denied) and not any(each.code == "ok" for each in outcomes)


def _denied_words(denied: Sequence[CallOutcome]) -> str:
    last = denied[-1].denied
    return "Denied." if last is None else f"Denied ({last.source}): {last.reason}"


def _waiting_words(waiting: Iterable[ApprovalRequest]) -> str:
    codes = ", ".join(show_code(each.code) for each in waiting)
    return f"Waiting for approval, {codes}. People decide; no message to this task does."


def _waiting_facts(request: ApprovalRequest, public_url: str) -> dict[str, Any]:
    """The approver signs in on the page."""
    found: dict[str, Any] = {
        "type": "approval-required",
        "code": show_code(request.code),
        "tool": request.tool,
        "page": f"{public_url}/approvals/{request.id}",
    }
    return found if request.expires_at is None else {**found, "expiresAt": time_text(request.expires_at)}


def _call(outcome: CallOutcome) -> dict[str, Any]:
    found = {"tool": outcome.tool, "type": outcome.type, "code": outcome.code}
    if outcome.denied is None:
        return {**found, "note": outcome.note} if outcome.note else found
    return {**found, "source": outcome.denied.source, "reason": outcome.denied.reason}


def _part(kind: str, value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text": value, "mediaType": "text/plain", "metadata": {"type": kind}}
    return {"data": value, "mediaType": "application/json", "metadata": {"type": kind}}
