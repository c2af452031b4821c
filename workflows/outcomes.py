"""Makes the one result of a call for each way of not running."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, FailureError

from signoff.contracts.activity_messages import RunOptions
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import IN_DOUBT_TEXT, CallCode, CallOutcome
from signoff.contracts.content import Content, text_of
from signoff.contracts.updates import Updates, merge_updates
from signoff.formats.replace import replace

LOST: Final = (ActivityError, ApplicationError, exceptions.TimeoutError)
"""What an activity raises that came to nothing: a local one the very error that its function raised, as the SDK wraps
no other than a timeout or a cancel, and not each of these."""
_LATE: Final = "It ran out of time."
_NEVER_BEGUN = ("not_available", "input_invalid", "too_many_calls")
_BRIEF = 300


def given_up_outcome(unknown: CallOutcome, asked: ApprovalRequest | None) -> CallOutcome:
    """Makes the outcome of a call in doubt that is not tried again, its effect unknown."""
    if asked is None:
        return unknown
    return replace(unknown, approval_id=asked.id, decided_by=asked.decided_by)


def in_doubt_outcome(call: str, tool: str) -> CallOutcome:
    """Makes the outcome of a call whose effect is unknown."""
    return CallOutcome(call=call, tool=tool, code="in_doubt", gate="execute", value=Content(inline=IN_DOUBT_TEXT))


def failed_outcome(call: str, tool: str, code: CallCode, text: str) -> CallOutcome:
    """Makes an outcome with words for the model."""
    return CallOutcome(call=call, tool=tool, code=code, gate="execute", value=Content(inline=text))


def unwanted_outcome(call: str, tool: str) -> CallOutcome:
    """Makes the outcome of a call whose turn was stopped before it ran."""
    return failed_outcome(call, tool, "skipped", "Not executed: the turn was cancelled.")


def aborted_outcome(call: str, tool: str) -> CallOutcome:
    """Makes the outcome of a call that was stopped, or never begun, because a sibling failed."""
    return failed_outcome(call, tool, "skipped", "Not executed: another call of the same completion failed.")


def may_fall_back(ended: CallOutcome, options: RunOptions) -> bool:
    """Returns whether a fallback may follow a call that ended so, run with `options`: it failed before it had its
    effect.

    Of what people denied, the gates refused or nobody knows, nothing else is tried.
    """
    if ended.code == "execution_failed":
        # At a gate after that, the tool had done its work: only what became of its result was wrong.
        return options.read_only or (options.idempotent and ended.gate == "execute")
    # The tool's own word that it is not there. A name that the actor may not use is refused, and nothing replaces it.
    return ended.code == "not_available" and ended.gate == "available"


def fallback_outcome(primary: CallOutcome, tried: Sequence[CallOutcome]) -> CallOutcome:
    """Makes the one outcome of a call, under the call's own id, after its fallbacks were `tried`.

    It is that of the last one that ran or that somebody decided; where none did, the call's own. What each of them
    changed counts, as a check that failed may keep what it found.
    """
    if not tried:
        return primary
    ended = next((each for each in reversed(tried) if not _is_never_begun(each)), primary)
    words = [_went(each) for each in (primary, *tried) if each is not ended]
    if ended is not primary:
        words.append(f"`{ended.tool}` was tried in its place.")
    return replace(
        ended,
        call=primary.call,
        tool=primary.tool,
        note=" ".join(filter(None, (*words, ended.note))),
        fallback="" if ended is primary else ended.tool,
        primary_error=text_of(primary.value)[:_BRIEF],
        updates=_merge_tried(primary, *tried),
    )


def _merge_tried(*tried: CallOutcome) -> Updates | None:
    found = [each.updates for each in tried if each.updates is not None]
    return reduce(merge_updates, found) if found else None


def stops_siblings(primary: CallOutcome, ended: CallOutcome) -> bool:
    """Returns whether a call failed that ended in `ended`: its tool did, and none in its place did better."""
    worse = primary.code == "execution_failed" and bool(ended.fallback) and ended.code in _NEVER_BEGUN
    return ended.code == "execution_failed" or worse


def _is_never_begun(outcome: CallOutcome) -> bool:
    """Returns whether the call was stopped before it ran, or the gates ended it; with their codes a handler fails."""
    return outcome.code == "skipped" or (outcome.code in _NEVER_BEGUN and outcome.gate != "execute")


def _went(outcome: CallOutcome) -> str:
    """Writes how an attempt went, for the model. The words of a tool are whole or absent: marks around them must
    stay.
    """
    if outcome.code == "skipped":
        return f"`{outcome.tool}` was to be tried in its place. {text_of(outcome.value)}"
    what = "could not be used" if _is_never_begun(outcome) else "failed"
    text = "" if outcome.value.blob is not None else text_of(outcome.value)
    return f"`{outcome.tool}` {what}: {text}." if 0 < len(text) <= _BRIEF else f"`{outcome.tool}` {what}."


def error_type(error: FailureError) -> str:
    """Returns the name of our error behind an activity's failure, or "" for anything else."""
    ours = _own_error(error)
    return "" if ours is None else ours.type or ""


def error_text(error: FailureError) -> str:
    """Returns the one sentence behind an activity's failure."""
    ours = _own_error(error)
    if ours is not None:
        return ours.message
    # The SDK words it otherwise, as it raises it otherwise, where a local activity is read from history.
    is_late = any(isinstance(each, exceptions.TimeoutError) for each in (error, error.cause))
    return _LATE if is_late else str(error.cause or error)


def _own_error(error: FailureError) -> ApplicationError | None:
    """Returns the error of an activity's function: behind the failure of an activity, and itself that of a local
    one.
    """
    found = error if isinstance(error, ApplicationError) else error.cause
    return found if isinstance(found, ApplicationError) else None


def first_error_text(error: FailureError) -> str:
    """Returns the sentence of our own error somewhere behind an activity's failure; "" where only Temporal wrote
    one.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type:
            return cause.message
        cause = cause.__cause__
    return ""


def was_cancelled(error: FailureError) -> bool:
    """Returns whether an activity ended because it was cancelled."""
    return isinstance(error.cause, CancelledError)
