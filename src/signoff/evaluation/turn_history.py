"""A finished turn as its history holds it, everything inline."""

from dataclasses import dataclass
from datetime import datetime

from signoff.contracts.activity_messages import ModelReply, ModelTask
from signoff.contracts.call import CallContext
from signoff.contracts.turn import TurnInput, TurnResult
from signoff.formats.replace import replace


@dataclass(frozen=True)
class HistoryStep:
    """One completion: what was asked of the model, and what came of it."""

    task: ModelTask
    """What was asked, with the conversation until then."""
    reply: ModelReply
    """The completion, and mostly what the gates said of its calls."""
    at: datetime
    """When it had ended, by the server's clock."""

    @property
    def ctx(self) -> CallContext:
        """The context in which its calls were judged: at the place to which the turn moved before it."""
        place = self.reply.place
        return self.task.ctx if place is None else replace(self.task.ctx, route=place.route, step=place.step)


@dataclass(frozen=True)
class TurnHistory:
    """A turn from its start to its result."""

    turn: TurnInput
    """What it was started with."""
    steps: tuple[HistoryStep, ...]
    """Its completions, in order."""
    result: TurnResult | None
    """Its result; None where it has not ended with one."""
