"""Activity `signoff.outcome`: what became of a call whose activity timed out or was lost?"""

from temporalio import activity

from signoff.activities.journal import hand_over, now
from signoff.activities.permit import Caller, caller_problem
from signoff.activities.room import Room
from signoff.approvals.entries import finished
from signoff.contracts import names
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.steps import OutcomeTask, ToolReply
from signoff.store.tickets import ticket_key


class OutcomeActivity:
    """Reads the ticket; one that nobody claimed is voided, so that a late worker cannot run it any more."""

    def __init__(self, room: Room) -> None:
        self._room = room

    @activity.defn(name=names.OUTCOME)
    async def outcome(self, task: OutcomeTask) -> ToolReply:
        """The recorded outcome; or `again=lapsed` when nothing ran; or an outcome `in_doubt`."""
        info = activity.info()
        permit = task.permit
        caller = Caller(info.workflow_type or "", info.workflow_id or "", task.tool, permit.call)
        problem = caller_problem(caller, permit, task.tool)
        if problem:
            activity.logger.warning("refused to look up a ticket: %s", problem)
            return ToolReply(outcome=_settled(task, "refused", f"Not executed: {problem}."))
        await hand_over(self._room, task.audit)
        reply = await self._found(task, info.workflow_id or "")
        if reply.outcome is not None:
            key = ticket_key(permit.digest, task.ticket)
            await hand_over(self._room, [finished(permit, reply.outcome, key, now())])
        return reply

    async def _found(self, task: OutcomeTask, workflow: str) -> ToolReply:
        permit = task.permit
        tool = self._room.catalog.registry.resolve(task.tool)
        if tool is not None and tool.read_only:
            return ToolReply(outcome=_settled(task, "execution_failed", "The tool did not answer in time."))
        key = ticket_key(permit.digest, task.ticket)
        found = await self._room.store.void_unclaimed(key, workflow=workflow, call=permit.call, tool=task.tool)
        if found.kind == "done" and found.outcome is not None:
            return ToolReply(outcome=found.outcome)
        if found.kind == "void":
            return ToolReply(again="lapsed", note="the approval was not used in time")
        return ToolReply(outcome=_settled(task, "in_doubt", IN_DOUBT_TEXT))


def _settled(task: OutcomeTask, code: str, text: str) -> CallOutcome:
    return CallOutcome.model_validate(
        {"call": task.permit.call, "tool": task.tool, "code": code, "gate": "execute", "value": Content(inline=text)}
    )
