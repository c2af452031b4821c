"""Activity `signoff.outcome`: finds the outcome of a call whose activity timed out or was lost.

Also reads an external agent's report.
"""

from temporalio import activity

from signoff.activities.approval_reader import ApprovalReader, doubts_of
from signoff.activities.call_journal import attribute, hand_over, mark_claims, write
from signoff.activities.capability_backends import grant_capabilities
from signoff.activities.gate_activity import is_of
from signoff.activities.handler_runner import tool_context_of
from signoff.activities.heartbeat import check_ended
from signoff.activities.hooks.policy_handlers import terms_at
from signoff.activities.hooks.tool_hooks import judge_past_call
from signoff.activities.permit_check import ActivityCaller, approval_of, caller_problem, has_happened, words_on
from signoff.activities.probes import ProbeRunner, recorded_reply
from signoff.activities.results.result_processor import ResultProcessor
from signoff.activities.stored_permit import prove_for_probe
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.approval_outcomes import happened_outcome
from signoff.approvals.call_events import finished_entry
from signoff.audit.log import entry_writer
from signoff.contracts import names
from signoff.contracts.activity_messages import OutcomeTask, ToolReply
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome, Permit
from signoff.contracts.content import Content
from signoff.contracts.decision import Decision
from signoff.contracts.errors import Refused
from signoff.contracts.ids import SessionKey
from signoff.contracts.message import CallPart
from signoff.formats.replace import replace
from signoff.registry.gates.argument_check import final_arguments
from signoff.registry.results.dispatch_record import execution_facts
from signoff.registry.tool import Tool
from signoff.store.content_store import load_in
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
        info = activity.info()
        permit = task.permit
        # This activity's own type and id do not name the call: check the turn.
        caller = ActivityCaller(info.workflow_type or "", info.workflow_id or "", task.tool, permit.call)
        problem = caller_problem(caller, permit, task.tool)
        if problem:
            activity.logger.warning("refused to look up a ticket: %s", problem)
            self._deps.store.count_refusal("unproved")
            return ToolReply(outcome=_settle(task, "refused", f"Not executed: {problem}."))
        await hand_over(self._deps, task.audit)
        workflow = info.workflow_id or ""
        if task.report:
            return await self._find_report(task, workflow)
        if task.happened is None:
            reply = await self._find_outcome(task, workflow)
        else:
            reply = await self._record_word(task, task.happened)
        if reply.outcome is not None:
            tool = self._deps.catalog.tool_view(permit.ctx).tool(task.tool)
            seen = [await self._make_entry(task, tool, reply.outcome)]
            await write(self._deps, seen if await self._is_known(task, workflow) else mark_claims(seen))
        return reply

    async def _make_entry(self, task: OutcomeTask, tool: Tool | None, outcome: CallOutcome) -> AuditEntry:
        # Omit the arguments: nothing here has bound them to the permit.
        facts = {} if tool is None else execution_facts(tool, task.permit)
        key = ticket_key(task.permit.digest, task.ticket)
        entry = finished_entry(task.permit, outcome, key, self._deps.clock(), facts)
        return (await attribute(self._deps, task.permit.ctx, [entry]))[0]

    async def _is_known(self, task: OutcomeTask, workflow: str) -> bool:
        """Return whether the store confirms the begun call, and the gateway its requester."""
        permit = task.permit
        if await self._deps.requester_problem(permit.ctx):
            return False
        found = await self._deps.store.read_ticket(ticket_key(permit.digest, task.ticket))
        # A read has no ticket: only the turn claims that it began.
        return found is not None and (found.workflow, found.call, found.tool) == (workflow, permit.call, task.tool)

    async def _find_report(self, task: OutcomeTask, workflow: str) -> ToolReply:
        """Return the external agent's reported outcome, or `in_doubt` once the turn gives up the report.

        Reads the store, where the gateway recorded the report under the agent's token: a turn's claim proves nothing.
        """
        permit, tool = task.permit, self._deps.catalog.tool_view(task.permit.ctx).tool(task.tool)
        # Check the ticket: a turn may name the digest of another turn's call.
        if tool is None or not tool.is_external or not await self._is_known(task, workflow):
            return ToolReply()
        key = ticket_key(permit.digest, task.ticket)
        if task.report == "look":
            found = await self._deps.store.read_ticket(key)
            return ToolReply() if found is None else ToolReply(outcome=found.outcome)
        unknown = _settle(task, "in_doubt", IN_DOUBT_TEXT)
        # Write it together with the outcome. An earlier attempt that recorded the outcome has also recorded this entry.
        seen = entry_writer([await self._make_entry(task, tool, unknown)])
        try:
            return ToolReply(outcome=await self._deps.store.record(key, unknown, also=seen))
        except Refused as error:
            activity.logger.warning("the outcome of %s cannot be recorded: %s", tool.name, error.message)
            return ToolReply()

    async def _record_word(self, task: OutcomeTask, word: Decision) -> ToolReply:
        """Record `word` on the ticket if its author may decide."""
        permit, tool = task.permit, self._deps.catalog.tool_view(task.permit.ctx).tool(task.tool)
        if tool is None or task.args is None or await self._deps.requester_problem(permit.ctx):
            return ToolReply()
        call = CallPart(call=permit.call, tool=task.tool, args=task.args)
        args = await load_in(self._deps.store, task.args, _place(task))
        found = await judge_past_call(self._deps.catalog, permit.ctx, call, args, self._deps.clock())
        approvals, policy = ApprovalReader(self._deps), self._deps.catalog.policy(tool.activity)
        rows = await approvals.of(permit)
        doubted = replace(permit, doubts=(*permit.doubts, word))
        words = words_on(doubted, rows, task.ticket)
        doubts = doubts_of(rows)
        at = doubts[-1].judged_at if doubts else found.at
        terms = await terms_at(self._deps.catalog, permit.ctx, args, found, tool, at)
        # Use the time of the question: its approvers may still answer on any later day.
        asked = terms or self._deps.catalog.terms(tool.activity, found.verdict)
        voters = await approvals.voters(permit, tool.activity, asked, words, doubts)
        if not has_happened(word, words, policy, self._deps.signature_policy, voters):
            activity.logger.warning("no entitled person says that %s happened", tool.name)
            return ToolReply()
        key = ticket_key(permit.digest, task.ticket)
        try:
            return ToolReply(outcome=await self._deps.store.record(key, happened_outcome(permit.call, tool.name, word)))
        except Refused as error:
            activity.logger.warning("the decision that %s happened cannot be recorded: %s", tool.name, error.message)
            return ToolReply()

    async def _find_outcome(self, task: OutcomeTask, workflow: str) -> ToolReply:
        permit = task.permit
        tool = self._deps.catalog.tool_view(permit.ctx).tool(task.tool)
        key = ticket_key(permit.digest, task.ticket)
        if tool is not None and tool.read_only and await self._asked_of(task, tool):
            # A lost read has changed nothing, so approvers need not be asked.
            failed = _settle(task, "execution_failed", "The tool did not answer in time.")
            return ToolReply(outcome=await self._gave_up(failed, tool, key))
        found = await self._deps.store.void_unclaimed(
            key, workflow=workflow, call=permit.call, tool=task.tool, nonce=permit.ctx.user.nonce
        )
        reply = recorded_reply(found)
        if reply is None and found.kind == "open":
            # Looked up while it still runs, the call would seem not to have happened, and would run again.
            await check_ended(self._deps.store, key)
        reply = reply or (None if tool is None else await self._looked_up(task, tool, key))
        return reply or ToolReply(outcome=_settle(task, "in_doubt", IN_DOUBT_TEXT))

    async def _asked_of(self, task: OutcomeTask, tool: Tool) -> bool:
        """Return whether the permit is for the tool's present definition: under another one, a read may have acted."""
        return task.args is not None and is_of(
            task.permit, tool, await load_in(self._deps.store, task.args, _place(task))
        )

    async def _gave_up(self, failed: CallOutcome, tool: Tool, key: str) -> CallOutcome:
        """Give back the use that a read consumed."""
        if tool.usage_limit is None:
            return failed
        try:
            # The store refuses if the read never claimed its ticket. Then it consumed no use.
            return await self._deps.store.record(key, failed)
        except Refused:
            return failed

    async def _looked_up(self, task: OutcomeTask, tool: Tool, key: str) -> ToolReply | None:
        permit = task.permit
        if tool.probe is None or task.args is None or await self._deps.requester_problem(permit.ctx):
            return None
        proposed = await load_in(self._deps.store, task.args, _place(task))
        if not is_of(permit, tool, proposed):
            return None
        args = final_arguments(tool, proposed)
        probing = ProbeRunner(self._deps, tool, ResultProcessor(self._deps, tool))
        given = grant_capabilities(self._deps.backends, self._deps.secrets, tool, permit.ctx.tenant)
        people, fields = self._deps.people, self._deps.catalog.fields
        known_of = await self._prove(permit, tool)
        context = tool_context_of(
            known_of,
            key,
            task.budget_chars,
            people=people,
            fields=fields,
            settings=tool.settings,
            capabilities=given,
        )
        return await probing.reply(known_of, args, context)

    async def _prove(self, permit: Permit, tool: Tool) -> Permit:
        """Ignores the permit's own claims."""
        approvals, policy = ApprovalReader(self._deps), self._deps.catalog.policy(tool.activity)
        rows = await approvals.of(permit) if permit.kind == "approved" else None
        approval = approval_of(permit, rows)
        return prove_for_probe(permit, approval, policy, self._deps.signature_policy)


def _settle(task: OutcomeTask, code: str, text: str) -> CallOutcome:
    return CallOutcome.model_validate(
        {"call": task.permit.call, "tool": task.tool, "code": code, "gate": "execute", "value": Content(inline=text)}
    )


def _place(task: OutcomeTask) -> SessionKey:
    return SessionKey(task.permit.ctx.tenant, task.permit.ctx.session)
