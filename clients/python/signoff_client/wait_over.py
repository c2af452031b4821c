"""Says what a wait for people that ran out means: the same for every adapter and every loop of one's own.

It denies nothing. The request stays open, nothing is run, and whoever comes back with the same key finds the call. A
framework that can suspend its run suspends it; elsewhere the model is told.
"""

from dataclasses import dataclass

from signoff_client.status import CallStatus, explain


@dataclass(frozen=True)
class WaitOver:
    """A call that still waits for people once its program has stopped waiting."""

    status: CallStatus
    wait: float | None
    has_key: bool
    """Whether the call has a key: the same call made again then has another one, and asks people again."""

    @property
    def words(self) -> str:
        """The answer to the model."""
        again = "Do not make the same call again: people would be asked twice. Tell your user that it waits."
        if not self.has_key:
            again = "Make the same call again later to get the answer."
        return f"{explain(self.status)} The request stays open. {again}"

    @property
    def advice(self) -> str:
        """The line of the program's log, with what to change."""
        name = f"`{self.status.tool}` ({self.status.code or self.status.id})"
        return (
            f"{name} still waits for people after `wait={self.wait:g}`; nothing was denied. Come back with the same "
            "key, or resume the run, to get the answer. To wait until people's deadline, leave `wait` out"
        )
