"""Has the gates judge calls for a turn: one local activity for a whole batch."""

import asyncio

from temporalio import workflow

from signoff.contracts import names
from signoff.contracts.activity_messages import GateReply, GateTask
from signoff.workflows import options, outcomes


async def judge_calls(task: GateTask) -> GateReply:
    """Returns the gates' decisions on the calls of `task`; asked until they answer."""
    try:
        reply: GateReply = await workflow.execute_local_activity(
            names.GATE, task, result_type=GateReply, summary=f"Judge {len(task.calls)} call(s)", **options.GATE
        )
    except outcomes.LOST as error:
        # The SDK calls a cancelled activity failed; to the turn it is its own cancel, and no fault of the gates.
        if outcomes.was_cancelled(error):
            raise asyncio.CancelledError from error
        raise
    return reply


async def judge_soon(task: GateTask) -> GateReply | None:
    """Returns the same for somebody who waits for a receipt; None when the gates do not answer in time."""
    try:
        reply: GateReply = await workflow.execute_local_activity(
            names.GATE, task, result_type=GateReply, summary="Judge a call with changed arguments", **options.EDIT
        )
    except outcomes.LOST:
        return None
    return reply
