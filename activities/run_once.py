"""Runs a tool as an activity: derives the right to run, claims a ticket, calls the handler once, records the outcome.

Reads claim no ticket. An idempotent call with an unknown outcome runs again under its key. Trusts no caller.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from signoff.activities.call_journal import CallContent, Journal, hand_over
from signoff.activities.caller_check import caller_problem, current_caller
from signoff.activities.grant_use import frozen_decision
from signoff.activities.heartbeat import check_ended, report_running, send_heartbeats
from signoff.activities.mcp.tool_servers import bind_to_servers
from signoff.activities.results.read_rest_tool import bind_to_store
from signoff.activities.results.result_processor import STORE_PAUSE, ResultProcessor, plain_outcome
from signoff.activities.run_handler import HandlerExecution, ProbeRunner, finish, is_unwanted, recorded_reply
from signoff.activities.run_right import CHANGED, PermittedCall, RunRights, call_of, left_reply, refusal
from signoff.activities.usage_check import use_of
from signoff.activities.worker_deps import WorkerDeps
from signoff.approvals.approval_outcomes import answer_for_model, answered_outcome
from signoff.approvals.audit_buffer import unfold_facts
from signoff.approvals.audit_events import facts_of_end
from signoff.contracts.activity_messages import RunTask, ToolReply, UsedPermit
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import IN_DOUBT_TEXT, CallOutcome
from signoff.contracts.decision import Decision
from signoff.contracts.ids import is_tool_name
from signoff.contracts.usage import exhausted_message
from signoff.formats.replace import replace
from signoff.registry.gates.judged_call import settled_decision
from signoff.registry.registry import definition_hash
from signoff.registry.tool import Tool
from signoff.store.content_store import to_content
from signoff.store.freezes import Freezes
from signoff.store.tickets import ticket_key

WORKERS_TRIED = 60
"""Attempts, a second apart, before a tool counts as removed: a rolling deploy must outlast its old workers."""
_ELSEWHERE = timedelta(seconds=1)
_STOPPED = "Not executed: it was stopped before it began."
_OTHER_ACTION = "another action was begun under this call already; if you still want this one, call the tool again"
_SUPERSEDED = "this was asked again, or is closed"


class RunOnce:
    """One tool as an activity. `pause` is the number of seconds before it retries a store that did not answer."""

    def __init__(self, deps: WorkerDeps, tool: Tool, *, pause: float = STORE_PAUSE) -> None:
        self._deps = deps
        self._tool = tool
        self._journal = Journal(deps, tool)
        self._rights = RunRights(deps, tool, self._journal)
        self._results = ResultProcessor(deps, tool, pause)
        self._handler = HandlerExecution(deps, tool, self._results)
        self._probing = ProbeRunner(deps, tool, self._results)

    async def run(self, task: RunTask) -> ToolReply:
        """Derive the right to run, then run the tool at most once. Refusals are outcomes, not errors."""
        async with send_heartbeats():
            another = "" if task.tool == self._tool.name else "its task names another tool"
            problem = another or caller_problem(current_caller(), task, self._tool.activity)
            if problem:
                # Do not record this: its stream would be the claim of a caller that is not that turn.
                self._deps.store.count_refusal("unproved")
                return refusal(task, self._tool, problem)
            await self._journal.receive(_read_entries(task), task.approval_id)
            call = await self._rights.derive(task)
            if isinstance(call, ToolReply):
                reply = call
            elif call.answer is not None:
                reply = await self._answer(task, call, call.answer)
            else:
                reply = await self._once(task, call)
            await self._journal.settle()
            return reply

    async def _once(self, task: RunTask, call: PermittedCall) -> ToolReply:
        tool, store, found, args = self._tool, self._deps.store, call.found, call.args
        holds = partial(self._rights.holds, task, call)
        # Even a read takes a ticket if approvers, a grant or a limit let it run: the ticket uses them up.
        reads = tool.read_only and not tool.is_external
        if reads and found.kind == "run" and not found.decision.grant and tool.usage_limit is None:
            if not (self._rights.needs_nobody or await store.run(holds)):
                return ToolReply(again="stale", note=_SUPERSEDED)
            # A claim checks for a freeze in its own transaction. Reads without a ticket must check separately.
            freeze = await Freezes(store).read(task.ctx.tenant)
            if freeze is not None:
                return await self._rights.end(task, frozen_decision(found, freeze.reason, call_of(task)))
            return ToolReply(outcome=await self._read(task, call))
        earlier = await self._rights.earlier_reply(task, call)
        if earlier is not None:
            return earlier
        key = ticket_key(task.digest, task.ticket)
        begins = await self._journal.start_entries(task, call.right, found, args, key)
        claiming = store.claim(
            key,
            workflow=activity.info().workflow_id or "",
            call=task.call,
            tool=tool.name,
            owner=task.use,
            nonce=task.ctx.user.nonce,
            grant=call.right.grant,
            use=use_of(self._deps.catalog, tool, task.ctx, task.call),
            holds=holds,
            also=self._journal.together(begins, call.rows),
            # No worker can report that a call of an external agent still runs.
            runs=not tool.is_external,
            begun=task.ctx.user.issued_at,
        )
        claim = await finish(claiming)
        # The store writes `also` only with a fresh ticket. With any other claim, record the accepted entries now.
        if claim.kind == "fresh":
            self._journal.forget_received()
        else:
            await self._journal.settle()
        reply = recorded_reply(claim)
        if reply is not None:
            return reply
        if claim.kind == "frozen":
            return await self._rights.end(task, frozen_decision(found, claim.frozen, call_of(task)))
        if claim.kind == "other":
            return await self._rights.refuse(task, _OTHER_ACTION)
        if claim.kind == "superseded":
            return ToolReply(again="stale", note=_SUPERSEDED)
        if claim.kind == "ungranted":
            return ToolReply(again="policy", note="the remembered answer is used up, expired or revoked")
        if claim.again is not None and tool.usage_limit is not None:
            why = exhausted_message(tool.name, tool.usage_limit, claim.again)
            return await self._rights.end(task, settled_decision(call_of(task), "usage", "not_available", why, tool))
        # The same use request repeats if its reply was lost. Never read the ticket here: this claim may have written
        # its owner.
        is_same_use = bool(task.use) and not claim.frozen and claim.owner == task.use
        if tool.is_external and claim.kind == "open" and not is_same_use:
            raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
        # An idempotent tool begins again under its key, except in a frozen tenant.
        repeatable = tool.idempotent or tool.read_only or tool.is_external
        if claim.kind == "open" and (claim.frozen or not repeatable):
            await check_ended(store, key)
            looked_up = await self._probing.reply(task, args, self._handler.context(task, call.right, key))
            if looked_up is not None:
                return looked_up
            # Do not retry: each attempt would find the same ticket, and only approvers can decide its outcome.
            raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)
        await finish(self._journal.apart(begins))
        if is_unwanted():
            # An `open` ticket belongs to an earlier attempt, which may have acted. Only a fresh claim is certainly
            # unused.
            if claim.kind == "fresh":
                await self._never_began(task, key)
            raise asyncio.CancelledError
        if tool.is_external:
            kept = await to_content(store, args, task.place)
            return ToolReply(used=UsedPermit(args=kept, key=key, definition=definition_hash(tool), note=found.note))
        async with report_running(store, key):
            made = await self._handler.run(task, call.right, args, key)
            outcome = _add_note(made.outcome, found.note)
            if outcome.code == "in_doubt":
                looked_up = await self._probing.reply(task, args, self._handler.context(task, call.right, key))
                if looked_up is not None:
                    return looked_up
            # Before the transaction of the outcome: a specialist's large arguments go to the store.
            ends = await self._ends(task, outcome, key, CallContent(args, made.kept))
            await self._results.retry_store(lambda: store.record(key, outcome, also=self._journal.together(ends)))
        await self._journal.apart(ends)
        return ToolReply(outcome=outcome)

    async def _answer(self, task: RunTask, call: PermittedCall, word: Decision) -> ToolReply:
        """Give the model a person's answer instead of a run, under the call's ticket. Even a read takes one here."""
        earlier = await self._rights.earlier_reply(task, call)
        if earlier is not None:
            return earlier
        store, rows = self._deps.store, call.rows
        name = word.subject if rows is None else rows.request(rows.latest).decided_name or word.subject
        value = await to_content(store, answer_for_model(name, word), task.place)
        outcome = _add_note(answered_outcome(task.call, task.tool, name, value, word), call.found.note)
        key = ticket_key(task.digest, task.ticket)
        ends = await self._journal.end(task, outcome, key)
        claiming = store.claim_answered(
            key,
            outcome,
            workflow=activity.info().workflow_id or "",
            call=task.call,
            tool=self._tool.name,
            nonce=task.ctx.user.nonce,
            holds=partial(self._rights.holds, task, call),
            also=self._journal.together(ends, rows),
            begun=task.ctx.user.issued_at,
        )
        claim = await finish(claiming)
        await self._journal.settle()
        reply = recorded_reply(claim)
        if reply is not None:
            # The ticket may hold the outcome of an earlier run.
            if claim.outcome is not None and claim.outcome.code == "answered":
                await self._journal.apart(ends)
            return reply
        if claim.kind == "other":
            return await self._rights.refuse(task, _OTHER_ACTION)
        if claim.kind == "superseded":
            return ToolReply(again="stale", note=_SUPERSEDED)
        # A run has begun: the answer is too late, and the outcome unknown.
        raise ApplicationError(IN_DOUBT_TEXT, type="InDoubt", non_retryable=True)

    async def _never_began(self, task: RunTask, key: str) -> None:
        """Give back the ticket, and its use, of a call that was stopped before its handler ran."""
        outcome = plain_outcome(task.call, task.tool, "skipped", _STOPPED)
        ends = await self._ends(task, outcome, key, None)
        await self._results.retry_store(lambda: self._deps.store.void_claimed(key, also=self._journal.together(ends)))
        await self._journal.apart(ends)

    async def _read(self, task: RunTask, call: PermittedCall) -> CallOutcome:
        """The call needs no ticket."""
        await self._journal.alone(await self._journal.start_entries(task, call.right, call.found, call.args, ""))
        made = await self._handler.run(task, call.right, call.args, "")
        outcome = _add_note(made.outcome, call.found.note)
        ends = await self._ends(task, outcome, "", CallContent(call.args, made.kept))
        await self._results.retry_store(lambda: self._journal.alone(ends))
        return outcome

    async def _ends(self, task: RunTask, outcome: CallOutcome, key: str, ran: CallContent | None) -> list[AuditEntry]:
        return await self._results.retry_store(lambda: self._journal.end(task, outcome, key, ran))


def tool_activities(deps: WorkerDeps) -> list[Any]:
    """Return one activity a tool of the catalog, registered under its `activity`, and one for missing tools."""
    bound = (bind_to_servers(bind_to_store(tool, deps.store), deps.servers) for tool in deps.catalog.every_tool)
    return [*(_define(deps, tool) for tool in bound), _absent(deps)]


def _absent(deps: WorkerDeps) -> Any:
    @activity.defn(dynamic=True)
    async def absent_tool(args: Sequence[RawValue]) -> ToolReply:
        """Answer for a tool that this worker lacks: other workers are tried first, then the call is judged again.

        If a worker with the tool began the call, the reply reports that instead, because no worker can run it again.
        """
        info = activity.info()
        if info.attempt < WORKERS_TRIED:
            text = f"this worker has no tool `{info.activity_type}`"
            if info.attempt == 1:
                activity.logger.warning("%s; other workers are tried for %d s", text, WORKERS_TRIED)
            # Use a benign category, so that the SDK does not log each attempt.
            raise ApplicationError(
                text,
                type="NotDeployed",
                next_retry_delay=_ELSEWHERE,
                category=ApplicationErrorCategory.BENIGN,
            )
        changed = ToolReply(again="stale", note=CHANGED)
        task: RunTask = activity.payload_converter().from_payload(args[0].payload, RunTask)
        # Check the caller here as well: naming a digest must not reveal the outcome of another caller's call.
        if caller_problem(current_caller(), task, info.activity_type):
            return changed
        await hand_over(deps, _read_entries(task))
        return await left_reply(deps.store, task) or changed

    return absent_tool


def _read_entries(task: RunTask) -> tuple[AuditEntry, ...]:
    return unfold_facts(task.audit, facts_of_end(task))


def _define(deps: WorkerDeps, tool: Tool) -> Any:
    async def run(task: RunTask) -> ToolReply:
        # One activity runs all undeclared tools, and judges there whether this name is one.
        named = tool.undeclared and is_tool_name(task.tool)
        return await RunOnce(deps, dataclasses.replace(tool, name=task.tool) if named else tool).run(task)

    return activity.defn(name=tool.activity)(run)


def _add_note(outcome: CallOutcome, note: str) -> CallOutcome:
    return replace(outcome, note=" ".join(filter(None, (note, outcome.note)))) if note else outcome
