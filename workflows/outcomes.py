"""Builds the outcomes of calls that did not run, failed or have an unknown outcome."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from temporalio import exceptions
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, FailureError

from signoff.contracts.activity_messages import RunOptions
from signoff.contracts.approval import TurnQuestion
from signoff.contracts.call import IN_DOUBT_TEXT, CallCode, CallOutcome
from signoff.contracts.content import Content, text_of
from signoff.contracts.updates import Updates, merge_updates
from signoff.formats.replace import replace

LOST: Final = (ActivityError, ApplicationError, exceptions.TimeoutError)
"""Errors of a failed activity. A local activity raises its function's own error: the SDK wraps only timeouts and
cancellations, and not all of these."""
_LATE: Final = "It ran out of time."
_NEVER_BEGUN = ("not_available", "input_invalid", "too_many_calls")
_BRIEF = 300


def given_up_outcome(unknown: CallOutcome, asked: TurnQuestion | None) -> CallOutcome:
    """The outcome stays unknown, but the call is not retried."""
    if asked is None:
        return unknown
    return replace(unknown, approval_id=asked.id, decided_by=asked.decided_by)


def in_doubt_outcome(call: str, tool: str) -> CallOutcome:
    return CallOutcome(call=call, tool=tool, code="in_doubt", gate="execute", value=Content(inline=IN_DOUBT_TEXT))


def failed_outcome(call: str, tool: str, code: CallCode, text: str) -> CallOutcome:
    return CallOutcome(call=call, tool=tool, code=code, gate="execute", value=Content(inline=text))


def unwanted_outcome(call: str, tool: str) -> CallOutcome:
    return failed_outcome(call, tool, "skipped", "Not executed: the turn was cancelled.")


def aborted_outcome(call: str, tool: str) -> CallOutcome:
    """Return the outcome of a call that was stopped, or never started, because a sibling failed."""
    return failed_outcome(call, tool, "skipped", "Not executed: another call of the same completion failed.")


def may_fall_back(ended: CallOutcome, options: RunOptions) -> bool:
    """Return whether a fallback may follow: only if the call failed before it had its effect.

    None follows a call that was denied, refused by the gates, or has an unknown outcome.
    """
    if ended.code == "execution_failed":
        # If a later gate failed the call, the tool had done its work and only its result was wrong.
        return options.read_only or (options.idempotent and ended.gate == "execute")
    # The tool itself reported that it is not available. A tool that the actor may not use is refused, without fallback.
    return ended.code == "not_available" and ended.gate == "available"


def fallback_outcome(primary: CallOutcome, tried: Sequence[CallOutcome]) -> CallOutcome:
    """Return the call's single outcome, under its own id: that of the last tool that ran or that a person decided,
    otherwise its own. The context updates of all attempts count, because a failed check may keep its findings.
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
    updates = [each.updates for each in tried if each.updates is not None]
    return reduce(merge_updates, updates) if updates else None


def stops_siblings(primary: CallOutcome, ended: CallOutcome) -> bool:
    """Return whether a call that ended in `ended` failed: its tool failed, and no fallback did better."""
    worse = primary.code == "execution_failed" and bool(ended.fallback) and ended.code in _NEVER_BEGUN
    return ended.code == "execution_failed" or worse


def _is_never_begun(outcome: CallOutcome) -> bool:
    """Return whether the call was stopped before it ran, or by the gates.

    A handler can fail with the gates' codes too, so the gate is compared as well.
    """
    return outcome.code == "skipped" or (outcome.code in _NEVER_BEGUN and outcome.gate != "execute")


def _went(outcome: CallOutcome) -> str:
    """Describe an attempt for the model.

    The tool's text is whole or absent, so that the marks around it stay intact.
    """
    if outcome.code == "skipped":
        return f"`{outcome.tool}` was to be tried in its place. {text_of(outcome.value)}"
    what = "could not be used" if _is_never_begun(outcome) else "failed"
    text = "" if outcome.value.blob is not None else text_of(outcome.value)
    return f"`{outcome.tool}` {what}: {text}." if 0 < len(text) <= _BRIEF else f"`{outcome.tool}` {what}."


def error_type(error: FailureError) -> str:
    """Return the type of Signoff's error behind an activity's failure, or "" for any other error."""
    ours = _own_error(error)
    return "" if ours is None else ours.type or ""


def error_text(error: FailureError) -> str:
    ours = _own_error(error)
    if ours is not None:
        return ours.message
    # During replay, the SDK raises another error with another text for a local activity. Use one text for both.
    is_late = any(isinstance(each, exceptions.TimeoutError) for each in (error, error.cause))
    return _LATE if is_late else str(error.cause or error)


def _own_error(error: FailureError) -> ApplicationError | None:
    """Return the error of an activity's function: the cause of a failed activity, or a local activity's own error."""
    own = error if isinstance(error, ApplicationError) else error.cause
    return own if isinstance(own, ApplicationError) else None


def first_error_text(error: FailureError) -> str:
    """Return the message of Signoff's first error in the chain of causes, or "" if only Temporal raised errors."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ApplicationError) and cause.type:
            return cause.message
        cause = cause.__cause__
    return ""


def was_cancelled(error: FailureError) -> bool:
    return isinstance(error.cause, CancelledError)
