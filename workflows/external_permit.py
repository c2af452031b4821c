"""Decides who may use the permit of an external call, once, without any I/O."""

from typing import Final, Literal

from signoff.contracts.activity_messages import UseCode, UseReply
from signoff.contracts.call import CallOutcome
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace

_WORDS: Final[dict[UseCode, str]] = {
    "used": "this permit was used already",
    "waiting": "people are still asked about this call",
    "denied": "this call was denied",
    "lapsed": "this permit was withdrawn, or not used in time",
    "stale": "what was permitted has changed meanwhile; the call is judged again",
    "frozen": "nothing is begun, as the tenant is frozen",
    "ended": "this call has ended",
    "conflict": "this key names a call with other content; choose another key",
    "unavailable": "it cannot be said now whether it may run; try again with the same id",
}
_LAPSED_AS: Final[dict[str, UseCode]] = {"denied": "denied", "skipped": "lapsed"}


class ExternalPermit(FrozenModel):
    """The permit of one external call, from its judgement to its use. Each step makes another one."""

    is_open: bool = False
    """Whether it waits to be used."""
    tried_by: str = ""
    """The try that is looked at just now, until it has taken its answer."""
    answer: UseReply | None = None
    """The answer to that try."""
    used_by: str = ""
    """The try that was handed it."""
    used: UseReply | None = None
    """What that try was handed."""

    def open_up(self) -> "ExternalPermit":
        """Returns the permit once it may be used."""
        return replace(self, is_open=True)

    def close(self) -> "ExternalPermit":
        """Returns the permit once nobody may use it any more; whoever still tries has come too late."""
        late = use_refusal("lapsed") if self.tried_by and self.answer is None else self.answer
        return replace(self, is_open=False, answer=late)

    def begin_try(self, wish: str) -> "ExternalPermit":
        """Returns the permit while the try `wish` is looked at."""
        return replace(self, tried_by=wish, answer=None)

    def answer_try(self, reply: UseReply) -> "ExternalPermit":
        """Returns the permit once there is an answer to the try; with what it hands out that try alone has used it."""
        handed = {} if reply.permit is None else {"used_by": self.tried_by, "used": reply}
        return replace(self, answer=reply, **handed)

    def end_try(self) -> "ExternalPermit":
        """Returns the permit once the try has taken its answer, and the next one may be looked at."""
        return replace(self, tried_by="")


def use_refusal(code: str) -> UseReply:
    """Makes the answer to who may not use a permit; `code` may be what a turn said, and anything can answer as one."""
    known: UseCode = next((each for each in _WORDS if each == code), "unavailable")
    return UseReply(code=known, message=_WORDS[known])


def closing_reason(*, is_asked: bool, stopped: bool, outcome: CallOutcome | None) -> UseCode:
    """Returns why a permit is not open: people are asked, its turn was stopped, or its call has this outcome."""
    if is_asked:
        return "waiting"
    if outcome is None:
        return "lapsed" if stopped else "waiting"
    return _LAPSED_AS.get(outcome.code, "ended")


def examine_use(
    permit: ExternalPermit, wish: str, *, stopped: bool, why_closed: UseCode
) -> UseReply | Literal["", "wait"]:
    """Returns the answer to a try; "" where its right has yet to be derived, `wait` while that is done for another.

    `why_closed` is what is said where the permit is not open.
    """
    if permit.used is not None:
        return permit.used if wish == permit.used_by else use_refusal("used")
    if not permit.is_open or stopped:
        return use_refusal(why_closed)
    return "wait" if permit.tried_by else ""


def use_problem(permit: ExternalPermit, wish: str, why_closed: UseCode) -> UseCode:
    """Returns why a try is refused before it leaves a trace; "" where it has to be looked at."""
    if permit.used is not None:
        return "" if wish == permit.used_by else "used"
    return "" if permit.is_open or permit.tried_by else why_closed
