"""How one call of a turn is carried out: its activity, and what became of it when that was lost."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from signoff.approvals.doubts import happened
from signoff.approvals.entries import turn_stream
from signoff.approvals.seen import Seen
from signoff.contracts import names
from signoff.contracts.approval import ApprovalRequest
from signoff.contracts.call import CallOutcome, Permit, Pinned
from signoff.contracts.message import CallPart
from signoff.contracts.steps import OutcomeTask, Ruling, ToolReply, ToolTask
from signoff.workflows import options, outcomes
from signoff.workflows.record import TurnRecord

_KEEPS_WORDS = "write to the ticket that it happened"
"""Turns in which people said so before this existed have no such activity in their histories."""


class Running:
    """The tools of one turn that run now. `unwritten` is what the turn has seen; each task takes it along."""

    def __init__(self, record: TurnRecord, ctx: Pinned, unwritten: Seen) -> None:
        self._record = record
        self._ctx = ctx
        self._unwritten = unwritten
        self._handles: dict[str, workflow.ActivityHandle[ToolReply]] = {}

    def cancel(self) -> None:
        """Ask everything that runs to stop; what has begun an effect is awaited all the same."""
        for handle in self._handles.values():
            handle.cancel()

    async def run(self, call: CallPart, ruling: Ruling, permit: Permit, ticket: int) -> ToolReply:
        """Run one call. Never raises for what became of it."""
        task = ToolTask(
            permit=permit,
            tool=call.tool,
            args=call.args,
            ticket=ticket,
            budget_chars=ruling.options.budget_chars,
            audit=self._unwritten.take(turn_stream(self._ctx), self._ctx.tenant),
        )
        try:
            return await (_local(call, task, ruling) if ruling.options.local else self._scheduled(call, task, ruling))
        except ActivityError as error:
            # It may not have begun at all.
            self._unwritten.give_back(task.audit)
            return await self._after_failure(error, call, ruling, permit, ticket)

    async def keep(
        self, call: CallPart, ruling: Ruling, permit: Permit, ticket: int, request: ApprovalRequest
    ) -> CallOutcome:
        """What became of a call of which a person says in `request` that it happened, once that is in its ticket.

        There it outlives the turn's history: a turn that is begun anew finds it, and asks nobody again.
        """
        word = request.votes[-1].decision
        told = happened(call.call, call.tool, word)
        if not workflow.patched(_KEEPS_WORDS):
            return told
        task = self._question(call, ruling, permit, ticket).model_copy(update={"happened": word})
        try:
            reply = await _became(task, f"Write down that {call.tool} happened")
        except ActivityError:
            self._unwritten.give_back(task.audit)
            return told
        # A worker that was only slow has told more than anybody who looked later.
        return reply.outcome or told

    async def _scheduled(self, call: CallPart, task: ToolTask, ruling: Ruling) -> ToolReply:
        handle: workflow.ActivityHandle[ToolReply] = workflow.start_activity(
            call.tool, task, activity_id=call.call, result_type=ToolReply, **options.tool(ruling.options)
        )
        self._handles[call.call] = handle
        try:
            reply = await handle
        finally:
            del self._handles[call.call]
        if reply.outcome is not None:
            self._record.active_seconds += reply.outcome.duration_ms / 1000
        return reply

    async def _after_failure(
        self, error: ActivityError, call: CallPart, ruling: Ruling, permit: Permit, ticket: int
    ) -> ToolReply:
        kind = outcomes.error_type(error)
        if outcomes.was_cancelled(error) and ruling.options.read_only:
            return ToolReply(outcome=outcomes.unwanted(call.call, call.tool))
        if kind == "InDoubt":
            return ToolReply(outcome=outcomes.in_doubt(call.call, call.tool))
        if kind == "Refused":
            return ToolReply(outcome=outcomes.failed(call.call, call.tool, "refused", outcomes.error_text(error)))
        if ruling.options.local:
            return ToolReply(
                outcome=outcomes.failed(call.call, call.tool, "execution_failed", outcomes.error_text(error))
            )
        return await _became(self._question(call, ruling, permit, ticket), f"Find out what became of {call.tool}")

    def _question(self, call: CallPart, ruling: Ruling, permit: Permit, ticket: int) -> OutcomeTask:
        return OutcomeTask(
            permit=permit,
            tool=call.tool,
            ticket=ticket,
            idempotent=ruling.options.idempotent,
            args=call.args,
            budget_chars=ruling.options.budget_chars,
            audit=self._unwritten.take(turn_stream(self._ctx), self._ctx.tenant),
        )


async def _became(task: OutcomeTask, summary: str) -> ToolReply:
    reply: ToolReply = await workflow.execute_activity(
        names.OUTCOME, task, result_type=ToolReply, summary=summary, **options.OUTCOME
    )
    return reply


async def _local(call: CallPart, task: ToolTask, ruling: Ruling) -> ToolReply:
    reply: ToolReply = await workflow.execute_local_activity(
        call.tool, task, activity_id=call.call, result_type=ToolReply, **options.local_tool(ruling.options)
    )
    return reply
