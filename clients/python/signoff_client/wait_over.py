"""The texts for a wait for approvers that ran out, shared by all adapters and custom loops.

Nothing is denied or run. The request stays open, and the same key finds the call again. A framework that can suspend
its run suspends it, otherwise the model gets the text.
"""

from dataclasses import dataclass

from signoff_client.status import CallStatus, explain


@dataclass(frozen=True)
class WaitOver:
    """A call that still waits for approvers after its program has stopped waiting."""

    status: CallStatus
    wait: float | None
    has_key: bool
    """Whether the call has a key. The same call made again then gets another key, and approvers are asked twice."""

    @property
    def words(self) -> str:
        """The answer to the model."""
        advice = "Do not make the same call again: approvers would be asked twice. Inform your user that it waits."
        if not self.has_key:
            advice = "Make the same call again later to get the answer."
        return f"{explain(self.status)} The request stays open. {advice}"

    @property
    def advice(self) -> str:
        """The line for the program's log, with the remedy."""
        name = f"`{self.status.tool}` ({self.status.code or self.status.id})"
        return (
            f"{name} still waits for people after `wait={self.wait:g}`; nothing was denied. Come back with the same "
            "key, or resume the run, to get the answer. To wait until people's deadline, leave `wait` out"
        )
