"""A finished turn from its history, with all content inline."""

from dataclasses import dataclass
from datetime import datetime

from signoff.contracts.activity_messages import ModelReply, ModelTask
from signoff.contracts.call import CallContext
from signoff.contracts.turn import TurnInput, TurnResult
from signoff.formats.replace import replace


@dataclass(frozen=True)
class HistoryStep:
    """One completion: the model's task, and its result."""

    task: ModelTask
    """The request to the model, with the conversation so far."""
    reply: ModelReply
    """The completion, mostly with the gates' decisions on its calls."""
    at: datetime
    """The time of its end, by the server's clock."""

    @property
    def ctx(self) -> CallContext:
        """The context in which its calls were judged, at the turn's position at that time."""
        place = self.reply.place
        return self.task.ctx if place is None else replace(self.task.ctx, route=place.route, step=place.step)


@dataclass(frozen=True)
class TurnHistory:
    """A turn from its start to its result."""

    turn: TurnInput
    """The input of its start."""
    steps: tuple[HistoryStep, ...]
    """Its completions, in order."""
    result: TurnResult | None
    """Its result, or `None` if it has not ended with one."""
