"""Applies the context updates of a turn's tools, batch by batch. No I/O."""

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

_FULL: Final = f"all changes by tools together would exceed {SESSION_UPDATES_BYTES} bytes"


class UpdateRefusal(NamedTuple):
    """The rejected updates of one call, with the reason (`full` or `given`)."""

    outcome: CallOutcome
    names: tuple[str, ...]
    why: str


class AppliedUpdates(NamedTuple):
    """The outcomes of a batch, including calls that failed because of their updates, and the rejected updates."""

    outcomes: list[CallOutcome]
    refused: tuple[UpdateRefusal, ...]


class ContextUpdates:
    """The context of one turn."""

    def __init__(self, turn: TurnInput) -> None:
        self._given = turn.context
        self._held = turn.updates
        self._refused: list[UpdateRefusal] = []
        self.changed = NO_UPDATES

    @property
    def extra(self) -> dict[str, Any]:
        return apply_updates(self._held, self._given)

    def apply(self, outcomes: Sequence[CallOutcome]) -> AppliedUpdates:
        """Apply the updates of a batch's calls, in input order.

        Call only once all calls have settled: the order in which they end must not matter.
        """
        taken = [each if each.updates is None else self._take(each, each.updates) for each in outcomes]
        refused, self._refused = tuple(self._refused), []
        return AppliedUpdates(taken, refused)

    def _take(self, outcome: CallOutcome, wished: Updates) -> CallOutcome:
        # Keep the values that the turn's caller set: policies may read them, so no tool may overwrite them.
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
        # Keep the reason of the failure: the model needs it, and `UPDATE_FAILED` would claim that the call worked.
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
