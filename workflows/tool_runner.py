"""Runs one call of a turn, and looks up the outcome if its activity is lost."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from signoff.approvals.approval_outcomes import happened_outcome
from signoff.approvals.audit_buffer import fold_facts
from signoff.approvals.audit_events import facts_of_end
from signoff.contracts import names
from signoff.contracts.activity_messages import GateDecision, OutcomeTask, RunOptions, RunTask, ToolReply
from signoff.contracts.audit import AuditEntry
from signoff.contracts.call import CallOutcome
from signoff.contracts.decision import Decision
from signoff.formats.replace import replace
from signoff.workflows import options, outcomes
from signoff.workflows.external_runner import ExternalRunner
from signoff.workflows.turn_state import TurnState

_LATE = "the approval ran out while the call waited for its turn to run"
_NO_STORE = "It could not be run: the store did not answer."


class _Run(NamedTuple):
    """One running activity. Stopping a `harmless` one loses nothing."""

    handle: workflow.ActivityHandle[ToolReply]
    harmless: bool


class ToolRunner:
    """Runs the tools of one turn. Each task carries the audit entries that are not recorded yet."""

    def __init__(self, state: TurnState, external: ExternalRunner) -> None:
        self._state = state
        self._external = external
        self._slots = ConcurrencySlots()
        self._runs: dict[str, _Run] = {}
        self._aborted: set[str] = set()
        self._stopping: set[asyncio.Task[None]] = set()

    def cancel(self) -> None:
        """Calls that have started an effect are still awaited."""
        self._stop(list(self._runs))

    def abort(self, calls: Collection[str]) -> None:
        """Prevent `calls`, whose sibling failed, from starting, and stop read-only ones.

        Approved calls, and calls that have started an effect, continue.
        """
        self._aborted.update(calls)
        self._stop([call for call in calls if call in self._runs and self._runs[call].harmless])

    def is_aborted(self, call: str) -> bool:
        return call in self._aborted

    def unbegun_outcome(self, call: str, tool: str) -> CallOutcome:
        unwanted = self._state.stopped or not self.is_aborted(call)
        return (outcomes.unwanted_outcome if unwanted else outcomes.aborted_outcome)(call, tool)

    async def run(self, task: RunTask, gate_decision: GateDecision) -> ToolReply:
        """Run one call once a slot is free. Never raises because of the call's outcome."""
        ready = workflow.now()
        async with self._slots.acquire(gate_decision.options, partial(self._is_wanted, task)) as begins:
            if not begins:
                return ToolReply(outcome=self.unbegun_outcome(task.call, task.tool))
            left = _remaining_options(gate_decision.options, task, ready)
            if left is None:
                return ToolReply(again="policy", note=_LATE)
            return await self._begin(task, replace(gate_decision, options=left))

    async def take_answer(self, task: RunTask, gate_decision: GateDecision) -> ToolReply:
        """Have the tool's activity take a person's answer, which runs nothing: no slot, and no permit of an agent."""
        unwritten = self._state.book.unwritten.take()
        return await self._ask_activity(task, gate_decision.options, unwritten)

    async def keep(self, task: RunTask, word: Decision) -> CallOutcome:
        """Record in the ticket that the call happened, by `word`.

        The ticket outlives the turn's history: a restarted turn finds the outcome there and asks no one again.
        """
        happened = happened_outcome(task.call, task.tool, word)
        told = replace(self._question(task), happened=word)
        try:
            reply = await _became(told, f"Write down that {task.tool} happened")
        except ActivityError:
            self._state.book.unwritten.give_back(told.run.audit)
            return happened
        # Prefer a slow worker's own report: it holds more than the person's decision.
        return self._count_lost(reply).outcome or happened

    def _stop(self, calls: Collection[str]) -> None:
        if calls:
            stopping = asyncio.create_task(self._stop_soon(calls))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    async def _stop_soon(self, calls: Collection[str]) -> None:
        # First handle activities that ended in this workflow task: cancelling a finished handle loses its result.
        await workflow.wait_condition(lambda: True)
        for call in calls:
            if call in self._runs:
                self._runs[call].handle.cancel()

    def _is_wanted(self, task: RunTask) -> bool:
        return not self._state.stopped and (task.revision is not None or not self.is_aborted(task.call))

    async def _begin(self, task: RunTask, gate_decision: GateDecision) -> ToolReply:
        given = self._state.turn.external
        # Skip calls that a rule allows: their agent has only just proposed them.
        if given is not None and given.attended and task.revision is not None and not gate_decision.options.external:
            ready = workflow.now()
            unwanted = await self._external.wait_for_agent(task, gate_decision)
            left = _remaining_options(gate_decision.options, task, ready)
            if unwanted is not None or left is None:
                return unwanted or ToolReply(again="policy", note=_LATE)
            gate_decision = replace(gate_decision, options=left)
        self._state.show_state(task.call, "running", gate_decision.rule)
        run, unwritten = gate_decision.options, self._state.book.unwritten.take()
        if run.external:
            told = replace(task, audit=fold_facts(unwritten, facts_of_end(task)))
            reply = await self._external.run(told, gate_decision, partial(self._question, task))
            if not self._external.is_recorded:
                self._state.book.unwritten.give_back(unwritten)
            return reply
        return await self._ask_activity(task, run, unwritten)

    async def _ask_activity(self, task: RunTask, run: RunOptions, unwritten: tuple[AuditEntry, ...]) -> ToolReply:
        told = replace(task, audit=fold_facts(unwritten, facts_of_end(task)))
        try:
            reply = await (_local(told, run) if run.local else self._schedule(told, run))
        except outcomes.LOST as error:
            # The activity may never have started, so its entries may be unrecorded.
            self._state.book.unwritten.give_back(unwritten)
            return self._count_lost(await self._after_failure(error, task, run))
        if reply.outcome is not None:
            self._state.count_work(reply.outcome)
        return reply

    async def _schedule(self, task: RunTask, run: RunOptions) -> ToolReply:
        handle: workflow.ActivityHandle[ToolReply] = workflow.start_activity(
            run.activity or task.tool,
            task,
            # The tool's activity compares this id with its task, so that no task runs another call.
            activity_id=task.call,
            result_type=ToolReply,
            **options.tool(run),
        )
        # Let approved calls finish. Calls under a grant as well: their ticket has spent the grant.
        by_rule = task.revision is None and not task.grant
        self._runs[task.call] = _Run(handle, harmless=by_rule and run.read_only)
        try:
            return await handle
        finally:
            del self._runs[task.call]

    def _count_lost(self, reply: ToolReply) -> ToolReply:
        """Count the cost and time of a lost call.

        They are known if the worker was only slow, or if the outcome was looked up.
        """
        outcome = reply.outcome
        if outcome is not None and (outcome.cost or outcome.duration_ms):
            self._state.count_work(outcome)
        return reply

    async def _after_failure(self, error: FailureError, task: RunTask, run: RunOptions) -> ToolReply:
        kind = outcomes.error_type(error)
        # A read-only call has no effect, so its outcome cannot be unknown.
        if outcomes.was_cancelled(error) and run.read_only:
            return ToolReply(outcome=self.unbegun_outcome(task.call, task.tool))
        if kind == "InDoubt":
            return ToolReply(outcome=outcomes.in_doubt_outcome(task.call, task.tool))
        if kind == "Refused":
            return ToolReply(
                outcome=outcomes.failed_outcome(task.call, task.tool, "refused", outcomes.error_text(error))
            )
        # Local tools only read and claim no ticket, so there is nothing to look up.
        if run.local:
            # Do not reveal the store's address to the model.
            text = _NO_STORE if kind == "StoreUnavailable" else outcomes.error_text(error)
            return ToolReply(outcome=outcomes.failed_outcome(task.call, task.tool, "execution_failed", text))
        # Only the ticket shows whether the effect had started. The server's error does not.
        return await _became(self._question(task), f"Look up the outcome of {task.tool}")

    def _question(self, task: RunTask) -> OutcomeTask:
        return OutcomeTask(run=replace(task, audit=self._state.book.unwritten.take()))


def _remaining_options(options: RunOptions, task: RunTask, ready: datetime) -> RunOptions | None:
    """Return `options` with the approval's remaining lifetime after the wait for a slot, or `None` if it expired."""
    if task.revision is None:
        return options
    left = options.grant_ttl - (workflow.now() - ready).total_seconds()
    return replace(options, grant_ttl=left) if left > 0 else None


async def _became(task: OutcomeTask, summary: str) -> ToolReply:
    reply: ToolReply = await workflow.execute_activity(
        names.OUTCOME, task, result_type=ToolReply, summary=summary, **options.OUTCOME
    )
    return reply


async def _local(task: RunTask, run: RunOptions) -> ToolReply:
    reply: ToolReply = await workflow.execute_local_activity(
        run.activity or task.tool,
        task,
        activity_id=task.call,
        result_type=ToolReply,
        **options.local_tool(run),
    )
    return reply


class _Place:
    """One call that waits or runs. Compares by identity, because two calls may have equal options."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options


class ConcurrencySlots:
    """The running calls and the queue of ready ones.

    A call that waits for approval takes no slot. No call overtakes another, so an exclusive call gets its turn. No
    asyncio locks: the queue's conditions are checked after each history event, which makes replay deterministic.
    """

    def __init__(self) -> None:
        self._line: list[_Place] = []
        self._inside: list[_Place] = []

    @asynccontextmanager
    async def acquire(self, options: RunOptions, wanted: Callable[[], bool]) -> AsyncIterator[bool]:
        """Yield true once the call has a slot, or false without a slot once it is no longer `wanted`."""
        place = _Place(options)
        self._line.append(place)
        try:
            if wanted() and not self._may(place):
                await workflow.wait_condition(lambda: not wanted() or self._may(place))
        finally:
            # Also after cancellation: a call left in the queue would block all behind it.
            self._line.remove(place)
        if not wanted():
            yield False
            return
        self._inside.append(place)
        try:
            yield True
        finally:
            self._inside.remove(place)

    def _may(self, place: _Place) -> bool:
        if self._line[0] is not place:
            return False
        if not self._inside:
            return True
        alone = place.options.exclusive or any(each.options.exclusive for each in self._inside)
        return not alone and len(self._inside) < place.options.at_once
