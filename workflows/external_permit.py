"""Decides who may use the permit of an external call, once. No I/O."""

from typing import Final, Literal

from signoff.contracts.activity_messages import UseCode, UseReply
from signoff.contracts.call import CallOutcome
from signoff.contracts.frozen_model import FrozenModel
from signoff.formats.replace import replace

_WORDS: Final[dict[UseCode, str]] = {
    "used": "this permit was used already",
    "waiting": "this call still waits for approval",
    "denied": "this call was denied",
    "lapsed": "this permit was withdrawn, or not used in time",
    "stale": "the rules or the arguments changed after the approval; the call is judged again",
    "frozen": "the tenant is frozen, so no call starts",
    "ended": "this call has ended",
    "conflict": "this key names a call with other content; choose another key",
    "unavailable": "the right to run could not be checked; try again with the same id",
}
_LAPSED_AS: Final[dict[str, UseCode]] = {"denied": "denied", "answered": "denied", "skipped": "lapsed"}


class ExternalPermit(FrozenModel):
    """The permit of one external call, from its judgement to its use. Each step returns a new object."""

    is_open: bool = False
    """True while the permit waits for its use."""
    tried_by: str = ""
    """Id of the use request in progress, until it has received its answer."""
    answer: UseReply | None = None
    """The answer to the use request in progress."""
    used_by: str = ""
    """Id of the use request that received the permit."""
    used: UseReply | None = None
    """The reply to that use request."""

    def open_up(self) -> "ExternalPermit":
        return replace(self, is_open=True)

    def close(self) -> "ExternalPermit":
        """A use request that still lacks an answer is refused as `lapsed`."""
        late = use_refusal("lapsed") if self.tried_by and self.answer is None else self.answer
        return replace(self, is_open=False, answer=late)

    def begin_try(self, wish: str) -> "ExternalPermit":
        return replace(self, tried_by=wish, answer=None)

    def answer_try(self, reply: UseReply) -> "ExternalPermit":
        """If `reply` holds a permit, this request alone has used it."""
        handed = {} if reply.permit is None else {"used_by": self.tried_by, "used": reply}
        return replace(self, answer=reply, **handed)

    def end_try(self) -> "ExternalPermit":
        return replace(self, tried_by="")


def use_refusal(code: str) -> UseReply:
    """Return the refusal of a use request.

    `code` may come from a turn and is not trusted: an unknown code becomes `unavailable`.
    """
    known: UseCode = next((each for each in _WORDS if each == code), "unavailable")
    return UseReply(code=known, message=_WORDS[known])


def closing_reason(*, is_asked: bool, stopped: bool, outcome: CallOutcome | None) -> UseCode:
    if is_asked:
        return "waiting"
    if outcome is None:
        return "lapsed" if stopped else "waiting"
    return _LAPSED_AS.get(outcome.code, "ended")


def examine_use(
    permit: ExternalPermit, wish: str, *, stopped: bool, why_closed: UseCode
) -> UseReply | Literal["", "wait"]:
    """Return the answer if it is already certain, "" if the right to run must be derived first, or `wait` while that is
    in progress for another request. A permit that is not open is refused with `why_closed`.
    """
    if permit.used is not None:
        return permit.used if wish == permit.used_by else use_refusal("used")
    if not permit.is_open or stopped:
        return use_refusal(why_closed)
    return "wait" if permit.tried_by else ""


def use_problem(permit: ExternalPermit, wish: str, why_closed: UseCode) -> UseCode:
    """Return why a use request is refused without a history event, or "" if it needs a closer check."""
    if permit.used is not None:
        return "" if wish == permit.used_by else "used"
    return "" if permit.is_open or permit.tried_by else why_closed
