"""Cuts a turn's result to what the server takes: a completion that is too large would be tried for ever."""

from typing import Final

from signoff.contracts.call import CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.frozen_model import FrozenModel
from signoff.contracts.limits import TURN_RESULT_BYTES
from signoff.contracts.turn import TurnResult
from signoff.formats.replace import replace

_BESIDE: Final = ("structured", "data_update", "context_update", "meta", "updates")
_LEFT_OUT: Final = Content(inline="[left out: the turn's result would be too large]")


def bound_result(result: TurnResult) -> TurnResult:
    """Cuts `result` to `TURN_RESULT_BYTES` of JSON: first what stands beside values is left out, then values and words.

    The earliest calls give theirs first; the answer rests on the latest. The workflow's own messages keep every
    value.
    """
    over = json_size(result) - TURN_RESULT_BYTES
    if over <= 0:
        return result
    calls = list(result.calls)
    for shorter in (_without_beside, _bare):
        for at, outcome in enumerate(calls):
            short = shorter(outcome)
            saved = json_size(outcome) - json_size(short)
            # Some grow: what says that a value was left out may be longer than the value.
            if over > 0 and saved > 0:
                calls[at] = short
                over -= saved
    return replace(result, calls=tuple(calls))


def json_size(shape: FrozenModel) -> int:
    """Returns the bytes of `shape` as JSON, as histories hold it."""
    return len(shape.on_wire())


def _without_beside(outcome: CallOutcome) -> CallOutcome:
    gone = tuple(name for name, each in outcome if name in _BESIDE and each is not None)
    return replace(outcome, **dict.fromkeys(gone), left_out=gone) if gone else outcome


def _bare(outcome: CallOutcome) -> CallOutcome:
    denied = outcome.denied and replace(outcome.denied, reason="")
    named = ("value", "note") if outcome.note else ("value",)
    return replace(outcome, value=_LEFT_OUT, note="", denied=denied, left_out=(*outcome.left_out, *named))
