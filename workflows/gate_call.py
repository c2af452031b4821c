"""Runs the gates over a turn's calls, with one local activity for a whole batch."""

import asyncio

from temporalio import workflow

from signoff.contracts import names
from signoff.contracts.activity_messages import GateReply, GateTask
from signoff.workflows import options, outcomes


async def judge_calls(task: GateTask) -> GateReply:
    """Retries until the gates answer."""
    try:
        reply: GateReply = await workflow.execute_local_activity(
            names.GATE, task, result_type=GateReply, summary=f"Judge {len(task.calls)} call(s)", **options.GATE
        )
    except outcomes.LOST as error:
        # The SDK reports a cancelled activity as failed. Pass on the turn's own cancellation instead.
        if outcomes.was_cancelled(error):
            raise asyncio.CancelledError from error
        raise
    return reply


async def judge_soon(task: GateTask) -> GateReply | None:
    """Like `judge_calls`, while an approver waits for a receipt. Returns `None` if the gates do not answer in time."""
    try:
        reply: GateReply = await workflow.execute_local_activity(
            names.GATE, task, result_type=GateReply, summary="Judge a call with changed arguments", **options.EDIT
        )
    except outcomes.LOST:
        return None
    return reply
