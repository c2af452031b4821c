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
    reply: ModelReply
    """It mostly has the gates' decisions on its calls."""
    at: datetime
    """The time of its end, by the server's clock."""

    @property
    def ctx(self) -> CallContext:
        """The turn's position is that of the time when its calls were judged."""
        place = self.reply.place
        return self.task.ctx if place is None else replace(self.task.ctx, route=place.route, step=place.step)


@dataclass(frozen=True)
class TurnHistory:
    """A turn from its start to its result."""

    turn: TurnInput
    steps: tuple[HistoryStep, ...]
    result: TurnResult | None
    """`None` if the turn has not ended with one."""
