"""Applies what the tools of one turn change of its context, batch by batch. Plain data and plain computation."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.limits import SESSION_UPDATES_BYTES
from signoff.contracts.turn import TurnInput
from signoff.contracts.updates import (
    NO_UPDATES,
    UPDATE,
    UPDATE_FAILED,
    UPDATE_LOST,
    Updates,
    apply_updates,
    free_updates,
    merge_updates,
)
from signoff.formats.replace import replace

_FULL: Final = f"all that tools changed of it would be over {SESSION_UPDATES_BYTES} bytes"


class UpdateRefusal(NamedTuple):
    """Names the changes of a call that were not taken, and says why (`full` or `given`)."""

    outcome: CallOutcome
    names: tuple[str, ...]
    why: str


class AppliedUpdates(NamedTuple):
    """The outcomes of a batch with those that failed at their changes, and what was not taken."""

    outcomes: list[CallOutcome]
    refused: tuple[UpdateRefusal, ...]


class ContextUpdates:
    """Holds the context of one turn."""

    def __init__(self, turn: TurnInput) -> None:
        self._given = turn.context
        self._held = turn.updates
        self._refused: list[UpdateRefusal] = []
        self.changed = NO_UPDATES

    @property
    def extra(self) -> dict[str, Any]:
        """Returns the context as the next completion sees it."""
        return apply_updates(self._held, self._given)

    def apply(self, outcomes: Sequence[CallOutcome]) -> AppliedUpdates:
        """Applies what the calls of a batch change, in input order.

        To be told once all of them are settled: which of them ended first must not matter.
        """
        taken = [each if each.updates is None else self._take(each, each.updates) for each in outcomes]
        refused, self._refused = tuple(self._refused), []
        return AppliedUpdates(taken, refused)

    def _take(self, outcome: CallOutcome, wished: Updates) -> CallOutcome:
        # What the caller gave stands: policies may read it, so no tool writes over it.
        new = free_updates(wished, self._given)
        held = merge_updates(self._held, new)
        if held.size > SESSION_UPDATES_BYTES:
            self._refused.append(UpdateRefusal(outcome, wished.names, "full"))
            return _full(outcome)
        kept_out = tuple(name for name in wished.names if name not in new.names)
        if kept_out:
            self._refused.append(UpdateRefusal(outcome, kept_out, "given"))
        self._held, self.changed = held, merge_updates(self.changed, new)
        return outcome if new.names else replace(outcome, updates=None)


def _full(outcome: CallOutcome) -> CallOutcome:
    tool = outcome.fallback or outcome.tool
    gone = {"updates": None, "data_update": None, "context_update": None, "place": None}
    if outcome.code != "ok":
        # Why it failed is what the model needs to know; that it ran and worked would not be true of it.
        note = f"{outcome.note} {UPDATE_LOST.format(tool, _FULL)}".strip()
        return replace(outcome, **gone, note=note)
    text = UPDATE_FAILED.format(tool, _FULL)
    return replace(
        outcome,
        **gone,
        code="execution_failed",
        gate=UPDATE,
        value=Content(inline=text),
        direct=False,
        truncated=False,
        rest="",
    )
