"""Activity `signoff.outcome`: what became of a call whose activity timed out or was lost?"""

from temporalio import activity

from signoff.activities.approval import ApprovalReader, doubts_of
from signoff.activities.asking import judged_past
from signoff.activities.capabilities import granted
from signoff.activities.gate import is_of
from signoff.activities.handler import context_of
from signoff.activities.journal import by_turn, hand_over, now, write
from signoff.activities.permit import Caller, caller_problem, happened, words_on
from signoff.activities.probing import Probing, known
from signoff.activities.results import Results
from signoff.activities.room import Room
from signoff.approvals.doubts import happened as told_by
from signoff.approvals.entries import finished
from signoff.contracts import names
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.errors import Refused
from signoff.contracts.message import CallPart
from signoff.contracts.steps import OutcomeTask, ToolReply
from signoff.registry.checking import as_run
from signoff.registry.execution import executed
from signoff.registry.tool import Tool
from signoff.store.content import load
from signoff.store.tickets import ticket_key


class OutcomeActivity:
    """Reads the ticket; one that nobody claimed is voided, so that a late worker cannot run it any more.

    Of one that was begun and never told the tool's probe, if it has one, is asked. A person's word that it happened is
    written to it, so that nobody is asked again whatever becomes of the workflow.
    """

    def __init__(self, room: Room) -> None:
        self._room = room

    @activity.defn(name=names.OUTCOME)
    async def outcome(self, task: OutcomeTask) -> ToolReply:
        """The recorded outcome; `again=lapsed` when nothing ran, `undone` when it came to nothing; or `in_doubt`.

        Neither an outcome nor `again`: the word that it happened is not to be written.
        """
        info = activity.info()
        permit = task.permit
        # This activity's own type and id say nothing of the call: it is the turn that is checked here.
        caller = Caller(info.workflow_type or "", info.workflow_id or "", task.tool, permit.call)
        problem = caller_problem(caller, permit, task.tool)
        if problem:
            activity.logger.warning("refused to look up a ticket: %s", problem)
            return ToolReply(outcome=_settled(task, "refused", f"Not executed: {problem}."))
        await hand_over(self._room, task.audit)
        if task.happened is None:
            reply = await self._found(task, info.workflow_id or "")
        else:
            reply = await self._told(task, task.happened)
        if reply.outcome is not None:
            key = ticket_key(permit.digest, task.ticket)
            tool = self._room.catalog.sight(permit.ctx).tool(task.tool)
            # Not its arguments: nothing here has bound them to the permit.
            facts = {} if tool is None else executed(tool, permit)
            entry = finished(permit, reply.outcome, key, now(), facts)
            # Of what takes no ticket nothing but the turn says that it was begun at all.
            unproved = tool is not None and tool.read_only and tool.usage_limit is None
            await write(self._room, [by_turn(entry) if unproved else entry])
        return reply

    async def _told(self, task: OutcomeTask, word: Decision) -> ToolReply:
        """What stands in the ticket once `word` is written there, if it is the word of somebody who may give it."""
        permit, tool = task.permit, self._room.catalog.sight(task.permit.ctx).tool(task.tool)
        if tool is None or task.args is None or self._room.witness.requester_problem(permit.ctx):
            return ToolReply()
        call = CallPart(call=permit.call, tool=task.tool, args=task.args)
        args = await load(self._room.store, task.args)
        found = await judged_past(self._room.catalog, permit.ctx, call, args)
        approvals, policy = ApprovalReader(self._room), self._room.catalog.policy(tool.activity)
        rows = await approvals.of(permit)
        told = permit.model_copy(update={"doubts": (*permit.doubts, word)})
        words = words_on(told, rows, task.ticket)
        seating = await approvals.seating(permit, tool.activity, found, words, doubts_of(rows))
        if not happened(word, words, policy, self._room.witness, seating):
            activity.logger.warning("nobody who may say so says that %s happened", tool.name)
            return ToolReply()
        key = ticket_key(permit.digest, task.ticket)
        try:
            return ToolReply(outcome=await self._room.store.record(key, told_by(permit.call, tool.name, word)))
        except Refused as error:
            activity.logger.warning("that %s happened cannot be written: %s", tool.name, error.message)
            return ToolReply()

    async def _found(self, task: OutcomeTask, workflow: str) -> ToolReply:
        permit = task.permit
        tool = self._room.catalog.sight(permit.ctx).tool(task.tool)
        key = ticket_key(permit.digest, task.ticket)
        if tool is not None and tool.read_only and await self._asked_of(task, tool):
            # A lost read has changed nothing, so there is nothing that people could be asked about.
            failed = _settled(task, "execution_failed", "The tool did not answer in time.")
            return ToolReply(outcome=await self._gave_up(failed, tool, key))
        found = await self._room.store.void_unclaimed(
            key, workflow=workflow, call=permit.call, tool=task.tool, nonce=permit.ctx.user.nonce
        )
        told = known(found) or (None if tool is None else await self._looked_up(task, tool, key))
        return told or ToolReply(outcome=_settled(task, "in_doubt", IN_DOUBT_TEXT))

    async def _asked_of(self, task: OutcomeTask, tool: Tool) -> bool:
        """Whether the tool was asked as it is defined now: by another definition what only reads may have acted."""
        return task.args is not None and is_of(task.permit, tool, await load(self._room.store, task.args))

    async def _gave_up(self, failed: CallOutcome, tool: Tool, key: str) -> CallOutcome:
        """What stands for a call that only reads, once the use that it took is given back."""
        if tool.usage_limit is None:
            return failed
        try:
            # Refused where it never claimed its ticket: then it took no use, either.
            return await self._room.store.record(key, failed)
        except Refused:
            return failed

    async def _looked_up(self, task: OutcomeTask, tool: Tool, key: str) -> ToolReply | None:
        """What the tool's probe finds of the very call that the permit is about."""
        permit = task.permit
        if tool.probe is None or task.args is None or self._room.witness.requester_problem(permit.ctx):
            return None
        proposed = await load(self._room.store, task.args)
        if not is_of(permit, tool, proposed):
            return None
        args = as_run(tool, proposed)
        probing = Probing(self._room, tool, Results(self._room, tool))
        given = granted(self._room.backends, tool, permit.ctx.tenant)
        people = self._room.people
        context = context_of(permit, key, task.budget_chars, people=people, capabilities=given)
        return await probing.reply(permit, args, context)


def _settled(task: OutcomeTask, code: str, text: str) -> CallOutcome:
    return CallOutcome.model_validate(
        {"call": task.permit.call, "tool": task.tool, "code": code, "gate": "execute", "value": Content(inline=text)}
    )
