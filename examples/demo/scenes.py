"""The main story: kills, denials and resets. Each scene returns its result, or raises `Unexpected`."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from demo.polling import Unexpected, expect, until
from demo.stage import FIRST_CALL, Stage, event_ids
from signoff.contracts.call import CallOutcome, RuleReference
from signoff.contracts.content import text_of
from signoff.contracts.ids import ApprovalKey, TurnKey
from signoff.contracts.message import ResultPart
from signoff.contracts.names import APPROVAL_RESPONSE
from signoff.contracts.turn import TurnView

BOOK = "book the 420 euro flight to Lisbon"
REASON = "too expensive"
PAUSE_SECONDS = 600
_COUNT = "SELECT count(*) FROM bookings"


@dataclass(frozen=True)
class Scene:
    """One result. `turn` shows it in detail."""

    words: str
    turn: TurnKey


async def play(stage: Stage) -> AsyncIterator[Scene]:
    """Play every scene in order."""
    yield (cheap := await by_itself(stage))
    waiting, cancelling = await two_waiting(stage)
    yield waiting
    booking = waiting.turn
    yield await killed_in_the_middle(stage, booking, cancelling)
    # The server needs 20 s to notice the dead worker. Play the rest of the story in that time.
    doubtful = asyncio.create_task(left_in_doubt(stage, cancelling))
    again = asyncio.create_task(finished_with_its_key(stage, booking))
    try:
        yield await denied(stage)
        yield await denied_by_policy(stage)
        yield (signalled := await by_signal(stage))
        yield await again
        yield await doubtful
    finally:
        for task in (doubtful, again):
            task.cancel()
    for key in (booking, cheap.turn, signalled.turn):
        yield await reset(stage, key)
    yield await reset(stage, cancelling, code="in_doubt")


async def by_itself(stage: Stage) -> Scene:
    """The policy books a trusted traveller's cheap flight without an approver."""
    key = await stage.ask("book the 39 euro flight to Porto", user="traveller")
    outcome = await stage.outcome(key)
    expect(
        "the cheap flight",
        ("ok", RuleReference(name="auto_approve_if"), ""),
        (outcome.code, outcome.rule, outcome.approval_id),
    )
    expect("bookings", [("TP 1951", 39.0)], stage.rows("SELECT flight, total FROM bookings"))
    return Scene("39 EUR for a trusted traveller ran by rule `auto_approve_if`; no approver was asked", key)


async def denied(stage: Stage) -> Scene:
    """An approver denies, and the model reads the name and the reason."""
    key = await stage.ask(BOOK)
    await stage.suspended(key)
    await stage.decide(key, verdict="denied", reason=REASON)
    await stage.finished(key)
    told = await _told(stage, key)
    expect("what the model read", ("human", REASON), (told.get("source"), told.get("reason")))
    expect("rows of a denied booking", [(0,)], await _bookings(stage, key))
    return Scene(f"420 EUR denied by {told['decided_by']}; ToolDenied reached the model: “{told['reason']}”", key)


async def denied_by_policy(stage: Stage) -> Scene:
    """A policy denies, without an approver."""
    key = await stage.ask("refund booking TD-1, 420 euro")
    view = await stage.finished(key)
    told = await _told(stage, key)
    expect("who denied the refund", "policy", told.get("source"))
    expect("requests for the refund", None, view.calls[0].approval)
    expect("refunds", [(0,)], stage.rows("SELECT count(*) FROM refunds"))
    return Scene(
        "a refund of 420 EUR was denied by rule `deny_if`; no approver was asked, and the model read the denial", key
    )


async def by_signal(stage: Stage) -> Scene:
    """Temporal's own command line decides, under the same rules."""
    key = await stage.ask(BOOK)
    await stage.suspended(key)
    answer = json.dumps({"approval_id": ApprovalKey(key, FIRST_CALL).id, "verdict": "approved"})
    given = ("--workflow-id", key.workflow_id, "--name", APPROVAL_RESPONSE, "--input", answer)
    await stage.temporal("workflow", "signal", *given)
    outcome = await stage.outcome(key)
    expect("the call approved by signal", "ok", outcome.code)
    expect("its decision is marked unsigned", [True], [vote.unsigned for vote in (await stage.asked(key)).votes])
    expect("rows booked by it", [(1,)], await _bookings(stage, key))
    return Scene("approved by `temporal workflow signal`; recorded as unsigned; one row", key)


async def two_waiting(stage: Stage) -> tuple[Scene, TurnKey]:
    """Two calls survive the death of their worker. Returns the scene of the booking, and the cancelling turn."""
    booking, cancelling = await asyncio.gather(stage.ask(BOOK), stage.ask("cancel booking TD-1"))
    await asyncio.gather(stage.suspended(booking), stage.suspended(cancelling))
    before = stage.rows(_COUNT)
    await stage.kill_worker()
    await stage.start_worker(pause_seconds=PAUSE_SECONDS)
    expect("bookings before a decision", before, stage.rows(_COUNT))
    words = "420 EUR and a cancellation waited; their worker was killed (SIGKILL) and started again: both still wait"
    await asyncio.gather(stage.suspended(booking), stage.suspended(cancelling))
    return Scene(words, booking), cancelling


async def killed_in_the_middle(stage: Stage, booking: TurnKey, cancelling: TurnKey) -> Scene:
    """Both calls are approved over HTTP. Their worker dies after both tools have written, and another starts."""
    receipts = await asyncio.gather(*(stage.decide(key, verdict="approved") for key in (booking, cancelling)))
    await until("the booking is written", lambda: _bookings(stage, booking), lambda rows: rows == [(1,)])
    await until("the cancellation is written", lambda: _cancellations(stage), lambda rows: rows == [(1,)])
    views = [await stage.signoff.view(key) for key in (booking, cancelling)]
    expect("both calls when the worker is killed", ["running"] * 2, [view.calls[0].state for view in views])
    await stage.kill_worker()
    await stage.start_worker()
    ways = " and ".join(sorted({receipt["status"] for receipt in receipts}))
    killed = "their worker was killed after the tools had written, before they answered"
    return Scene(f"both approved over HTTP ({ways}); {killed}", booking)


async def finished_with_its_key(stage: Stage, key: TurnKey) -> Scene:
    """An idempotent tool runs again with the same key: one row."""
    outcome = await stage.outcome(key)
    rows = stage.rows("SELECT booking, idempotency_key FROM bookings ORDER BY booking")
    mine = [row for row in rows if f"TD-{row[0]}" in _text(outcome)]
    expect("the booking after the kill", "ok", outcome.code)
    expect("rows of this booking", 1, len(mine))
    expect("rows with its key", [(1,)], await _bookings(stage, key))
    return Scene(
        f"book_flight (idempotent) was finished with the same key {mine[0][1][:8]}…: one row, TD-{mine[0][0]}", key
    )


async def left_in_doubt(stage: Stage, key: TurnKey) -> Scene:
    """A tool that is not idempotent does not run again. An approver gives up its call of unknown outcome."""
    await _give_up(stage, key)
    outcome = await stage.outcome(key)
    expect("the cancellation after the kill", "in_doubt", outcome.code)
    expect("cancellations", [(1,)], await _cancellations(stage))
    return Scene("cancel_booking (not idempotent) is in doubt: people were asked; carried out once, not repeated", key)


async def reset(stage: Stage, key: TurnKey, *, code: str = "ok") -> Scene:
    """Temporal resets the turn to before its first step. Effects do not happen again."""
    before = _effects(stage)
    shown = await stage.temporal("workflow", "show", "--workflow-id", key.workflow_id, "--output", "json")
    first = event_ids(shown, "EVENT_TYPE_WORKFLOW_TASK_COMPLETED")[0]
    given = ("--workflow-id", key.workflow_id, "--event-id", str(first), "--reason", "the demo")
    await stage.temporal("workflow", "reset", *given)
    if code == "in_doubt":
        await stage.suspended(key)
        request = await stage.asked(key)
        expect("the card says that the outcome is unknown", True, "its outcome is unknown" in request.card.note)
        # The call stays given up: no second question, and no run.
        await stage.decide(key, verdict="approved", revision=request.revision)
    outcome = await stage.outcome(key)
    expect("the call after the reset", code, outcome.code)
    expect("bookings and cancellations after the reset", before, _effects(stage))
    if code == "ok":
        how = "its effect is known, so no person was asked"
        what = f"still one row, {' '.join(re.findall(r'TD-[0-9]+', _text(outcome)))}"
    else:
        how, what = "a new question, since its outcome is unknown; it stays given up", "still carried out once"
    return Scene(f"{outcome.tool}, `temporal workflow reset` to before the request: {how}; {what}", key)


async def _give_up(stage: Stage, key: TurnKey) -> None:
    """Answer the question about the first call's unknown outcome: give it up."""
    asked = await until(
        f"turn `{key.turn}` asks for the outcome of its call",
        lambda: stage.signoff.view(key),
        lambda view: view.state == "suspended" and _is_doubt(view),
    )
    request = asked.calls[0].approval
    await stage.decide(key, verdict="denied", revision=request.revision if request else None)


def _is_doubt(view: TurnView) -> bool:
    request = view.calls[0].approval if view.calls else None
    return request is not None and request.kind == "in_doubt"


async def _told(stage: Stage, key: TurnKey) -> dict[str, str]:
    """Return the ToolDenied that the model read, from the transcript."""
    for message in await stage.signoff.transcript(key):
        for part in message.parts:
            if isinstance(part, ResultPart) and part.type == "ToolDenied" and isinstance(part.value.inline, dict):
                return part.value.inline
    raise Unexpected(f"turn `{key.turn}`: expected a ToolDenied in its transcript, seen none")


async def _bookings(stage: Stage, key: TurnKey) -> list[tuple[int]]:
    """Return the number of bookings with the key of this turn's call."""
    request = (await stage.signoff.view(key)).calls[0].approval
    return stage.rows("SELECT count(*) FROM bookings WHERE idempotency_key = ?", request.digest if request else "")


def _effects(stage: Stage) -> list[tuple[int]]:
    return stage.rows(f"{_COUNT} UNION ALL SELECT count(*) FROM cancellations")


async def _cancellations(stage: Stage) -> list[tuple[int]]:
    return stage.rows("SELECT count(*) FROM cancellations")


def _text(outcome: CallOutcome) -> str:
    return text_of(outcome.value)
