"""What a workflow and the gate's own activities say to each other, and how a call that is not run is told."""

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
"""The activity in whose place a workflow's own code stands: it returns the arguments that were approved."""
SIGNAL: Final = "signoff.call"
HEADER: Final = "signoff-call"
PATCH: Final = "signoff.gate"
EXTERN: Final = "__signoff_gate"
RETRY: Final = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=1))
"""How the gate's own activities are tried again."""

DENIED: Final = "ToolDenied"
"""It was not run and will not be: people, a rule, the deadline, a withdrawal, or no gateway."""
IN_DOUBT: Final = "ToolInDoubt"
"""Its permit was used before, and what became of it is not known."""
FAILED: Final = "ToolFailed"
"""It was run before, or by Signoff, and failed."""
UNREACHABLE: Final = "SignoffUnreachable"
"""The gateway gave no answer: tried again, and denied in the end."""
WAITING: Final = "SignoffWaiting"
"""People are asked anew, as the rules have changed since it was permitted."""
_UNREAD: Final = "unread"
_NOTHING: Final = RawValue(Payload())
NOT_KEPT: Final = "not_kept"
"""The key under which a report tells a result in words, where the result itself cannot be read back."""


@dataclass
class Question:
    """Says which call a workflow asks about."""

    tool: str
    args: dict[str, Any]
    key: str
    workflow: str
    signal: str
    says: str = ""
    user: str = ""


@dataclass
class Answer:
    """Says how a call stands."""

    state: str
    id: str = ""
    text: str = ""
    code: str = ""
    source: str = ""
    by: str = ""
    result: Any = None


@dataclass
class Use:
    """The header of an activity that was permitted: which call it is."""

    id: str
    tool: str
    attempt: str = ""
    """The name of this try, for the activity's first attempt alone."""
    is_resumed: bool = False
    """Whether an earlier activity of this try used the permit and was suspended."""


@dataclass
class Approval:
    """The input of `signoff.approved`."""

    tool: str
    args: dict[str, Any]
    says: str = ""
    user: str = ""


@dataclass
class ToldCalls:
    """The calls that a workflow waits for, and what it was told of each."""

    states: dict[str, str] = field(default_factory=dict)

    def take(self, message: RawValue = _NOTHING) -> None:
        """Takes a signal. It may say anything, and never raises: what an activity may run, the gateway says.

        One that cannot be read, as it is encrypted with keys that are not here, is about any of the calls.
        """
        try:
            told = json.loads(message.payload.data)
            key, state = told["callback"]["state"], str(told["state"])
        except (KeyError, TypeError, ValueError):
            self.states.update(dict.fromkeys(self.states, _UNREAD))
            return
        if isinstance(key, str) and key in self.states:
            self.states[key] = state


def answer_from_status(status: CallStatus) -> Answer:
    """Returns how a call stands, with the words for a model where it does not run."""
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
    """Returns the error of a call that is not run: it is never tried again."""
    kind = IN_DOUBT if answer.state == "used" or answer.code == "in_doubt" else DENIED
    if answer.state == "ended" and kind == DENIED:
        kind = FAILED
    details = {"id": answer.id, "state": answer.state, "source": answer.source, "by": answer.by}
    category = ApplicationErrorCategory.BENIGN if kind == DENIED else ApplicationErrorCategory.UNSPECIFIED
    return ApplicationError(answer.text, details, type=kind, non_retryable=True, category=category)


def kept_result(answer: Answer) -> Any:
    """Returns the result of a call that has ended `ok`. Raises `ApplicationError` where it was not kept."""
    result = answer.result
    if isinstance(result, dict) and set(result) == {NOT_KEPT}:
        words = f"It has run before, and its result was not kept: {result[NOT_KEPT]}"
        raise ApplicationError(words, type=IN_DOUBT, non_retryable=True)
    return result
