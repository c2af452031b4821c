"""Messages between workflows and the gate's own activities, and the errors of calls that are not run."""

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from signoff_client.status import CallStatus, explain

ASK: Final = "signoff.ask"
WITHDRAW: Final = "signoff.withdraw"
APPROVED: Final = "signoff.approved"
"""The activity for a workflow's own code. It returns the approved arguments."""
SIGNAL: Final = "signoff.call"
HEADER: Final = "signoff-call"
PATCH: Final = "signoff.gate"
EXTERN: Final = "__signoff_gate"
RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1))
"""The retry policy of the gate's own activities."""

DENIED: Final = "ToolDenied"
"""It was not run and will not be: approvers, a rule, the deadline, a withdrawal, or no gateway."""
IN_DOUBT: Final = "ToolInDoubt"
"""Its permit was used before, and its outcome is unknown."""
FAILED: Final = "ToolFailed"
"""It was run before, or by Signoff, and failed."""
UNREACHABLE: Final = "SignoffUnreachable"
"""The gateway gave no answer: retried, and finally denied."""
WAITING: Final = "SignoffWaiting"
"""Approvers are asked again, because the rules have changed since the permit."""
_UNREAD: Final = "unread"
_NOTHING: Final = RawValue(Payload())
NOT_KEPT: Final = "not_kept"
"""The key of a result's text in a report, if the result itself cannot be read back."""


@dataclass
class Question:
    """A workflow's question about a call."""

    tool: str
    args: dict[str, Any]
    key: str
    workflow: str
    signal: str
    says: str = ""
    user: str = ""


@dataclass
class Answer:
    """The state of a call."""

    state: str
    id: str = ""
    text: str = ""
    code: str = ""
    source: str = ""
    by: str = ""
    result: Any = None


@dataclass
class Use:
    """The header of a permitted activity: the id of its call."""

    id: str
    tool: str
    attempt: str = ""
    """The id of this attempt, for the activity's first attempt only."""
    is_resumed: bool = False
    """Whether an earlier activity of this attempt used the permit and was suspended."""


@dataclass
class Approval:
    """The input of `signoff.approved`."""

    tool: str
    args: dict[str, Any]
    says: str = ""
    user: str = ""


@dataclass
class ToldCalls:
    """The calls that a workflow waits for, and the latest signal about each."""

    states: dict[str, str] = field(default_factory=dict)

    def take(self, message: RawValue = _NOTHING) -> None:
        """Take a signal. Never raises. Its contents are untrusted: only the gateway can permit a call.

        An unreadable signal, encrypted with other keys, may concern any of the calls.
        """
        try:
            signal = json.loads(message.payload.data)
            key, state = signal["callback"]["state"], str(signal["state"])
        except (KeyError, TypeError, ValueError):
            self.states.update(dict.fromkeys(self.states, _UNREAD))
            return
        if isinstance(key, str) and key in self.states:
            self.states[key] = state


def answer_from_status(status: CallStatus) -> Answer:
    return Answer(
        state=status.state,
        id=status.id,
        text=explain(status),
        code=status.code,
        source=status.source,
        by=status.by,
        result=status.result,
    )


def not_run(answer: Answer) -> ApplicationError:
    """The error is never retried."""
    kind = IN_DOUBT if answer.state == "used" or answer.code == "in_doubt" else DENIED
    if answer.state == "ended" and kind == DENIED:
        kind = FAILED
    details = {"id": answer.id, "state": answer.state, "source": answer.source, "by": answer.by}
    category = ApplicationErrorCategory.BENIGN if kind == DENIED else ApplicationErrorCategory.UNSPECIFIED
    return ApplicationError(answer.text, details, type=kind, non_retryable=True, category=category)


def kept_result(answer: Answer) -> Any:
    """Raise `ApplicationError` if the result was not kept."""
    result = answer.result
    if isinstance(result, dict) and set(result) == {NOT_KEPT}:
        words = f"It has run before, and its result was not kept: {result[NOT_KEPT]}"
        raise ApplicationError(words, type=IN_DOUBT, non_retryable=True)
    return result
