"""Activity `signoff.outcome`: finds the outcome of a call whose activity timed out or was lost.

Also reads an external agent's report.
"""

from typing import Any

from temporalio import activity

from signoff.activities.call_journal import attribute, hand_over, mark_claims, write
from signoff.activities.caller_check import current_caller, turn_problem
from signoff.activities.heartbeat import check_ended
from signoff.activities.hooks.policy_handlers import terms_at
from signoff.activities.hooks.tool_hooks import judge_past_call
from signoff.activities.results.result_processor import ResultProcessor, plain_outcome
from signoff.activities.run_handler import ProbeRunner, recorded_reply, tool_context_of
from signoff.activities.run_right import call_of, own_ticket, voters_of
from signoff.activities.run_rules import approval_of, doubts_of, has_happened, is_of, probe_right, words_on
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.approval_outcomes import happened_outcome
from signoff.approvals.call_events import finished_entry
from signoff.audit.log import entry_writer
from signoff.contracts import names
from signoff.contracts.activity_messages import OutcomeTask, RunTask, ToolReply
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome, RunRight
from signoff.contracts.decision import Decision
from signoff.contracts.errors import Refused
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.results.dispatch_record import execution_facts
from signoff.registry.tool import Tool
from signoff.store.content_store import load_in
from signoff.store.questions.questions import Questions
from signoff.store.tickets import ticket_key


class OutcomeActivity:
    """Reads the ticket.

    Voids an unclaimed one, so that a late worker cannot run it. Asks the tool's probe, if any, about a begun call
    without an outcome. A decision that the call happened is recorded on the ticket: it is final even if the workflow is
    lost.
    """

    def __init__(self, deps: WorkerDeps) -> None:
        self._deps = deps

    @activity.defn(name=names.OUTCOME)
    async def outcome(self, task: OutcomeTask) -> ToolReply:
        """Return the recorded outcome, or `in_doubt`; `again=lapsed` if nothing ran, `undone` if it had no effect.

        A reply with neither means that a decision was not recorded, or that there is no report.
        """
        run = task.run
        # This activity's own type and id do not name the call.
        problem = turn_problem(current_caller(), run.turn, "this tool")
        if problem:
            activity.logger.warning("refused to look up a ticket: %s", problem)
            self._deps.store.count_refusal("unproved")
            return ToolReply(outcome=plain_outcome(run.call, run.tool, "refused", f"Not executed: {problem}."))
        await hand_over(self._deps, run.audit)
        if task.report:
            return await self._find_report(run, gives_up=task.report == "give_up")
        if task.happened is None:
            reply = await self._find_outcome(run)
        else:
            reply = await self._record_word(run, task.happened)
        if reply.outcome is not None:
            seen = [await self._make_entry(run, self._tool(run), reply.outcome)]
            await write(self._deps, seen if await self._is_known(run) else mark_claims(seen))
        return reply

    def _tool(self, run: RunTask) -> Tool | None:
        return self._deps.catalog.tool_view(run.ctx).tool(run.tool)

    async def _make_entry(self, run: RunTask, tool: Tool | None, outcome: CallOutcome) -> AuditEntry:
        # Omit the arguments: nothing here has bound them to the ticket.
        facts = {} if tool is None else execution_facts(tool, run.ctx.actor, run.call)
        entry = finished_entry(run.ctx, outcome, ticket_key(run.digest, run.ticket), self._deps.clock(), facts)
        return (await attribute(self._deps, run.ctx, [entry]))[0]

    async def _is_known(self, run: RunTask) -> bool:
        """Return whether the store confirms the begun call, and the gateway its requester."""
        if await self._deps.requester_problem(run.ctx):
            return False
        # A read has no ticket: only the turn claims that it began.
        return await own_ticket(self._deps.store, run, run.ticket) is not None

    async def _find_report(self, run: RunTask, *, gives_up: bool) -> ToolReply:
        """Return the external agent's reported outcome, or `in_doubt` once the turn gives up the report.

        Reads the store, where the gateway recorded the report under the agent's token: a turn's claim proves nothing.
        """
        tool = self._tool(run)
        # Check the ticket: a turn may name the digest of another turn's call.
        if tool is None or not tool.is_external or not await self._is_known(run):
            return ToolReply()
        key = ticket_key(run.digest, run.ticket)
        if not gives_up:
            found = await self._deps.store.read_ticket(key)
            return ToolReply() if found is None else ToolReply(outcome=found.outcome)
        unknown = plain_outcome(run.call, run.tool, "in_doubt", IN_DOUBT_TEXT)
        # Write it together with the outcome. An earlier attempt that recorded the outcome has also recorded this entry.
        seen = entry_writer([await self._make_entry(run, tool, unknown)])
        try:
            return ToolReply(outcome=await self._deps.store.record(key, unknown, also=seen))
        except Refused as error:
            activity.logger.warning("the outcome of %s cannot be recorded: %s", tool.name, error.message)
            return ToolReply()

    async def _record_word(self, run: RunTask, word: Decision) -> ToolReply:
        """Record `word` on the ticket if its author may decide."""
        tool, ctx = self._tool(run), run.ctx
        if tool is None or await self._deps.requester_problem(ctx):
            return ToolReply()
        args = await self._load_args(run)
        found = await judge_past_call(self._deps.catalog, ctx, call_of(run), args, self._deps.clock())
        policy = self._deps.catalog.policy(tool.activity)
        rows = await Questions(self._deps.store).read(run.approval_id)
        words, doubts = words_on(run.digest, rows, run.ticket), doubts_of(rows)
        at = doubts[-1].judged_at if doubts else found.at
        terms = await terms_at(self._deps.catalog, ctx, args, found, tool, at)
        # Use the time of the question: its approvers may still answer on any later day.
        asked = terms or self._deps.catalog.terms(tool.activity, found.verdict)
        voters = await voters_of(self._deps, ctx, tool.activity, asked, words, doubts)
        if not has_happened(word, words, policy, self._deps.signature_policy, voters):
            activity.logger.warning("no entitled person says that %s happened", tool.name)
            return ToolReply()
        key = ticket_key(run.digest, run.ticket)
        try:
            return ToolReply(outcome=await self._deps.store.record(key, happened_outcome(run.call, tool.name, word)))
        except Refused as error:
            activity.logger.warning("the decision that %s happened cannot be recorded: %s", tool.name, error.message)
            return ToolReply()

    async def _find_outcome(self, run: RunTask) -> ToolReply:
        tool, key = self._tool(run), ticket_key(run.digest, run.ticket)
        if tool is not None and tool.read_only and is_of(run, tool, await self._load_args(run)):
            # A lost read has changed nothing, so approvers need not be asked. Under another definition, it may have
            # acted.
            failed = plain_outcome(run.call, run.tool, "execution_failed", "The tool did not answer in time.")
            return ToolReply(outcome=await self._gave_up(failed, tool, key))
        workflow = activity.info().workflow_id or ""
        found = await self._deps.store.void_unclaimed(
            key, workflow=workflow, call=run.call, tool=run.tool, nonce=run.ctx.user.nonce
        )
        reply = recorded_reply(found)
        if reply is None and found.kind == "open":
            # Looked up while it still runs, the call would seem not to have happened, and would run again.
            await check_ended(self._deps.store, key)
        reply = reply or (None if tool is None else await self._looked_up(run, tool, key))
        return reply or ToolReply(outcome=plain_outcome(run.call, run.tool, "in_doubt", IN_DOUBT_TEXT))

    async def _load_args(self, run: RunTask) -> Any:
        return await load_in(self._deps.store, run.args, run.place)

    async def _gave_up(self, failed: CallOutcome, tool: Tool, key: str) -> CallOutcome:
        """Give back the use that a read consumed."""
        if tool.usage_limit is None:
            return failed
        try:
            # The store refuses if the read never claimed its ticket. Then it consumed no use.
            return await self._deps.store.record(key, failed)
        except Refused:
            return failed

    async def _looked_up(self, run: RunTask, tool: Tool, key: str) -> ToolReply | None:
        if tool.probe is None or await self._deps.requester_problem(run.ctx):
            return None
        proposed = await self._load_args(run)
        if not is_of(run, tool, proposed):
            return None
        probing = ProbeRunner(self._deps, tool, ResultProcessor(self._deps, tool))
        context = tool_context_of(self._deps, tool, run, await self._right(run, tool), key)
        return await probing.reply(run, final_arguments(tool, proposed), context)

    async def _right(self, run: RunTask, tool: Tool) -> RunRight:
        rows = None if run.revision is None else await Questions(self._deps.store).read(run.approval_id)
        policy = self._deps.catalog.policy(tool.activity)
        return probe_right(approval_of(run.revision, rows), policy, self._deps.signature_policy)
