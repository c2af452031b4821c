"""The exit code of commands that follow turns."""

from collections.abc import Iterable
from typing import Final

from signoff.contracts.call import CallOutcome
from signoff.contracts.turn import FAILED_STATES, TurnView

FAILED: Final = 1
NOT_DONE: Final = 3
"""The turns ended, but a call did not succeed."""
_CORRECTABLE: Final = ("input_invalid", "not_available", "too_many_calls")


def exit_code(turns: Iterable[TurnView]) -> int:
    """Calls of a turn that still waits do not count."""
    results = [turn.result for turn in turns if turn.result is not None]
    if any(result.state in FAILED_STATES for result in results):
        return FAILED
    return NOT_DONE if any(_is_undone(call) for result in results for call in result.calls) else 0


def _is_undone(outcome: CallOutcome) -> bool:
    """Calls that the model can correct do not count."""
    if outcome.code == "skipped":
        # The answer of a turn skips the other calls of its completion.
        return outcome.gate != "respond"
    return outcome.code != "ok" and outcome.code not in _CORRECTABLE
